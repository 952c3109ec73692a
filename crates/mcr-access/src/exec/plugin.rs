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
use tokio::time::Instant;

use super::{
    config::{ApiVersion, ClusterInfo, DEFAULT_DEADLINE, PluginConfig},
    service::PluginService,
    shared::SharedPlugin,
};
use crate::{
    credential::{Credential, CredentialError, CredentialSource, Impersonation, Refresh},
    endpoint::Endpoint,
    fingerprint::Fingerprint,
};

/// A source of credentials that runs a program, like the `exec` field of a kubeconfig's user.
///
/// The program speaks the exec credential protocol of Kubernetes (`client.authentication.k8s.io`). It runs as a child
/// process, without a terminal. At its deadline the source kills it with its children.
///
/// Sources with an equal configuration (command, arguments, environment, cluster information) share one result. They
/// never run the program twice at the same time, however many clusters use it.
///
/// In one process, at most eight programs work at the same time. The limit does not count a program that has run for
/// more than a second and only waits for a server. At most 1,024 such programs run beside the eight. A program whose
/// last run failed waits until all others have started, and such programs never fill more than half of the places.
///
/// The source never logs the output of the program, and never makes it part of an error.
///
/// ```
/// use mcr_access::{Endpoint, EndpointAccess, ExecPlugin};
///
/// let plugin = ExecPlugin::new("aws").args(["eks", "get-token", "--cluster-name", "prod"]).env("AWS_PROFILE", "fleet");
/// let access = EndpointAccess::new(Endpoint::new("https://prod.example.com".parse()?), plugin);
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[derive(Clone)]
pub struct ExecPlugin {
    config: Arc<PluginConfig>,
    impersonate: Option<Impersonation>,
    /// Empty until the first use, because the configuration is complete only then.
    shared: OnceLock<Arc<SharedPlugin>>,
    /// The serial number of the last credential that this source returned.
    last_serial: Arc<AtomicU64>,
}

impl ExecPlugin {
    /// A source that runs this command: a path, or a name to look up in `PATH`.
    pub fn new(command: impl Into<PathBuf>) -> Self {
        let config = PluginConfig {
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            version: ApiVersion::V1,
            cluster: None,
            deadline: DEFAULT_DEADLINE,
            install_hint: None,
            service: None,
        };
        Self {
            config: Arc::new(config),
            impersonate: None,
            shared: OnceLock::new(),
            last_serial: Arc::default(),
        }
    }

    fn change(mut self, change: impl FnOnce(&mut PluginConfig)) -> Self {
        change(Arc::make_mut(&mut self.config));
        // After the first use, this is the plugin of the former configuration.
        self.shared = OnceLock::new();
        self
    }

    pub(crate) fn config(&self) -> &PluginConfig {
        &self.config
    }

    /// A new source that runs the same program with the command, the service and the deadline that a policy admits. The
    /// program gets `endpoint` as its cluster.
    pub(crate) fn admitted(
        &self,
        (command, service): (PathBuf, Option<PluginService>),
        deadline: Duration,
        endpoint: &Endpoint,
    ) -> Self {
        let mut config = self.config.clone();
        let cluster = config.cluster.as_ref();
        let is_same_endpoint = cluster.is_none_or(|cluster| cluster.endpoint == *endpoint);
        // Most policies change nothing. The new source then shares the configuration, which saves memory.
        let is_same_program = config.command == command && config.service == service;
        if !is_same_endpoint || !is_same_program || config.deadline != deadline {
            let changed = Arc::make_mut(&mut config);
            (changed.command, changed.service, changed.deadline) = (command, service, deadline);
            if let Some(cluster) = &mut changed.cluster {
                cluster.endpoint = endpoint.clone();
            }
        }
        Self {
            config,
            impersonate: self.impersonate.clone(),
            shared: OnceLock::new(),
            last_serial: Arc::default(),
        }
    }

    /// Adds arguments to the command line of the program.
    #[must_use]
    pub fn args<A: Into<String>>(self, args: impl IntoIterator<Item = A>) -> Self {
        self.change(|config| config.args.extend(args.into_iter().map(Into::into)))
    }

    /// Adds an environment variable. The program also gets the environment of this process.
    #[must_use]
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|config| config.env.push((name.into(), value.into())))
    }

    /// Lets a service answer instead of the program. It gets no arguments and no variables; the command is its name in errors.
    #[must_use]
    pub fn service(self, service: PluginService) -> Self {
        self.change(|config| config.service = Some(service))
    }

    /// Sets the version of the protocol. The default is v1.
    #[must_use]
    pub fn api_version(self, version: ApiVersion) -> Self {
        self.change(|config| config.version = version)
    }

    /// Sets how long the program may run. The default is 30 s.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.change(|config| config.deadline = deadline)
    }

    /// Sets the advice in the error text if the program does not exist, for example how to install it.
    #[must_use]
    pub fn install_hint(self, hint: impl Into<String>) -> Self {
        self.change(|config| config.install_hint = Some(hint.into()))
    }

    /// Sets the cluster in the program's input (`provideClusterInfo`), with the plugin's configuration in the
    /// kubeconfig's entry of that cluster (`client.authentication.k8s.io/exec`). Clusters share a result only if all of
    /// this is equal.
    #[must_use]
    pub fn cluster_info(
        self,
        endpoint: &Endpoint,
        config: Option<serde_json::Value>,
        disable_compression: bool,
    ) -> Self {
        let cluster = ClusterInfo {
            endpoint: endpoint.clone(),
            config: config.unwrap_or_default().to_string(),
            disable_compression,
        };
        self.change(|config| config.cluster = Some(cluster))
    }

    /// Sets the user to impersonate.
    #[must_use]
    pub fn impersonate(mut self, impersonate: Option<Impersonation>) -> Self {
        self.impersonate = impersonate;
        self
    }
}

impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment can contain secrets.
        f.debug_struct("ExecPlugin")
            .field("command", &self.config.command)
            .finish_non_exhaustive()
    }
}

impl CredentialSource for ExecPlugin {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&(&self.config, &self.impersonate))
    }

    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        Box::pin(async move {
            let shared = self.shared.get_or_init(|| SharedPlugin::of(&self.config));
            let issued = shared
                .credential(why, self.last_serial.load(Ordering::Relaxed))
                .await?;
            self.last_serial.store(issued.serial, Ordering::Relaxed);
            let mut credential = issued.credential;
            credential.impersonate.clone_from(&self.impersonate);
            Ok(credential)
        })
    }

    fn is_plugin(&self) -> bool {
        true
    }

    fn work_began(&self) -> Option<Instant> {
        self.shared.get()?.began()
    }
}
