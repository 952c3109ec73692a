//! A plugin as a source of credentials.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;

use super::{
    plan::{ApiVersion, DEADLINE, Plan},
    protocol,
    shared::Shared,
};
use crate::{Credential, CredentialError, CredentialSource, Endpoint, Fingerprint, Impersonation, Refresh};

/// Credentials from a program that speaks the exec credential protocol of Kubernetes
/// (`client.authentication.k8s.io`), as in the `exec` field of a kubeconfig's user.
///
/// The program runs as a child process with a deadline and without a terminal; it is killed, with its children,
/// when the deadline passes. Sources with the same command, arguments, environment and cluster information share
/// one result and never run the program twice at a time, however many clusters they are of; no more than
/// eight programs run at once in a process. What the program prints is never logged and never part of an error.
///
/// ```
/// use mcr_access::{Endpoint, ExecPlugin, Parts};
///
/// let plugin = ExecPlugin::new("aws").args(["eks", "get-token", "--cluster-name", "prod"]).env("AWS_PROFILE", "fleet");
/// let access = Parts::new(Endpoint::new("https://prod.example.com".parse()?), plugin);
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[derive(Clone)]
pub struct ExecPlugin {
    plan: Plan,
    impersonate: Option<Impersonation>,
    /// Looked up on first use, when the plan is complete.
    shared: OnceLock<Arc<Shared>>,
    /// The serial number of the credential that was handed out last.
    handed: Arc<AtomicU64>,
}

impl ExecPlugin {
    /// Runs this command: a path, or a name that is looked up in `PATH`.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        let plan = Plan {
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            version: ApiVersion::V1,
            cluster: None,
            deadline: DEADLINE,
            install_hint: None,
        };
        Self {
            plan,
            impersonate: None,
            shared: OnceLock::new(),
            handed: Arc::default(),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(&mut self.plan);
        self.shared = OnceLock::new();
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(self, args: impl IntoIterator<Item = A>) -> Self {
        self.change(|plan| plan.args.extend(args.into_iter().map(Into::into)))
    }

    /// Sets an environment variable, beside those of this process.
    #[must_use]
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|plan| plan.env.push((name.into(), value.into())))
    }

    /// Sets the version of the protocol; v1 unless set.
    #[must_use]
    pub fn api_version(self, version: ApiVersion) -> Self {
        self.change(|plan| plan.version = version)
    }

    /// Sets how long the program may run; 30 s unless set.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.change(|plan| plan.deadline = deadline)
    }

    /// Sets what to tell people if the program is not there.
    #[must_use]
    pub fn install_hint(self, hint: impl Into<String>) -> Self {
        self.change(|plan| plan.install_hint = Some(hint.into()))
    }

    /// Tells the program which cluster the credential is for (`provideClusterInfo`), with the configuration that
    /// the cluster has for it. The result is then shared only between clusters of which all of this is equal.
    #[must_use]
    pub fn cluster_info(
        self,
        endpoint: &Endpoint,
        config: Option<serde_json::Value>,
        disable_compression: bool,
    ) -> Self {
        let cluster = protocol::cluster(endpoint, config, disable_compression);
        self.change(|plan| plan.cluster = Some(cluster))
    }

    /// Sets whom to act as.
    #[must_use]
    pub fn impersonate(mut self, impersonate: Option<Impersonation>) -> Self {
        self.impersonate = impersonate;
        self
    }
}

impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment may hold secrets.
        f.debug_struct("ExecPlugin")
            .field("command", &self.plan.command)
            .finish_non_exhaustive()
    }
}

impl CredentialSource for ExecPlugin {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(&self.plan, &self.impersonate))
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(async move {
            let shared = self.shared.get_or_init(|| Shared::of(&self.plan));
            let issued = shared
                .credential(why, self.handed.load(Ordering::Relaxed))
                .await?;
            self.handed.store(issued.serial, Ordering::Relaxed);
            let mut credential = issued.credential;
            credential.impersonate.clone_from(&self.impersonate);
            Ok(credential)
        })
    }
}
