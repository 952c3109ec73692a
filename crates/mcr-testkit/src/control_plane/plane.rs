use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tempfile::TempDir;

use super::api_server::{Files, Identity, Server};
use super::pki::{self, Authority};
use super::process::Process;
use super::{ControlPlaneError, Credentials, Etcd, controller_manager, crd, port};
use crate::audit::{AuditLog, AuditMark};

/// A running kube-apiserver, and the credentials of its administrator.
///
/// Cheap to clone. The server ends when the last clone is dropped, and the last [`User`](super::User) and
/// [`ServiceAccountUser`](super::ServiceAccountUser) of it.
#[derive(Clone)]
pub struct ControlPlane {
    inner: Arc<Inner>,
}

struct Inner {
    // Fields are dropped in this order: processes before their folder and before the etcd that they use.
    running: Mutex<Running>,
    /// Locked while the server is started or stopped, so that these operations do not overlap.
    lifecycle: tokio::sync::Mutex<()>,
    server: Server,
    _folder: TempDir,
}

struct Running {
    controller_manager: Option<Process>,
    api_server: Option<Process>,
    client: kube::Client,
}

/// The options of a control plane, except its name, its etcd and its CRDs.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) authority: Option<Arc<Authority>>,
    pub(super) controller_manager: bool,
    pub(super) audit: bool,
    pub(super) port: Option<u16>,
    pub(super) args: Vec<String>,
}

impl ControlPlane {
    pub(super) async fn start_with(
        settings: Settings,
        name: String,
        number: usize,
        etcd: Etcd,
    ) -> Result<Self, ControlPlaneError> {
        if settings.controller_manager {
            // Checked first, so that a missing binary is reported before an API server is started.
            etcd.binaries().controller_manager()?;
        }
        let identity = match settings.identity {
            Some(identity) => identity,
            None => Arc::new(Identity::new(&name, number, settings.authority)?),
        };
        let admin = pki::client(&identity.clients, "admin", &["system:masters".to_owned()], None)?;
        let folder = tempfile::Builder::new()
            .prefix("mcr-control-plane-")
            .tempdir()
            .map_err(ControlPlaneError::io("creating a temporary folder"))?;
        let files = Files {
            folder: folder.path().to_path_buf(),
        };
        files.write_all(&identity)?;

        let mut server = Server {
            name,
            port: 0,
            audit: settings.audit,
            args: settings.args,
            identity,
            admin,
            files,
            etcd,
        };
        let launched = match settings.port {
            Some(port) => {
                server.port = port;
                server.launch().await
            }
            None => {
                let launch = async |port| {
                    server.port = port;
                    server.launch().await
                };
                port::on_free_port(launch).await
            }
        };
        let (api_server, client) = launched?;
        let running = Running {
            controller_manager: None,
            api_server: Some(api_server),
            client,
        };
        let plane = Self {
            inner: Arc::new(Inner {
                running: Mutex::new(running),
                lifecycle: tokio::sync::Mutex::default(),
                server,
                _folder: folder,
            }),
        };
        if settings.controller_manager {
            plane.start_controller_manager().await?;
        }
        Ok(plane)
    }

    /// The name of the control plane.
    pub fn name(&self) -> &str {
        &self.inner.server.name
    }

    /// The URL of the API server: `https://127.0.0.1:<port>`. A restart does not change it.
    pub fn url(&self) -> String {
        self.inner.server.url()
    }

    /// The certificate authority that clients must trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.inner.server.identity.serving.pem()
    }

    /// A client that may do everything. It belongs to the Tokio runtime that started the server.
    pub fn client(&self) -> kube::Client {
        self.running().client.clone()
    }

    /// A kubeconfig that may do everything, with one context named after the control plane. It works
    /// from any runtime or process.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(self.admin_credentials())
    }

    pub(super) fn kubeconfig_with(&self, credentials: Credentials) -> String {
        self.inner.server.kubeconfig(credentials)
    }

    /// The certificate of a user who may do everything.
    pub fn admin_credentials(&self) -> Credentials {
        self.inner.server.admin.clone()
    }

    /// The etcd that the API server uses.
    pub fn etcd(&self) -> &Etcd {
        &self.inner.server.etcd
    }

    /// The process ID of the API server, for measurements. `None` while the server is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.running().api_server.as_ref().map(Process::pid)
    }

    /// Installs or updates a CRD and waits until all its versions are served.
    ///
    /// # Errors
    ///
    /// When the API server refuses it, or does not serve it within 30 s.
    pub async fn install_crd(&self, crd: Value) -> Result<(), ControlPlaneError> {
        crd::install(&self.client(), &crd).await
    }

    /// Kills the API server: connections break, and new ones are refused. etcd continues. Does nothing if the server
    /// is stopped already.
    ///
    /// # Errors
    ///
    /// None today.
    pub async fn stop(&self) -> Result<(), ControlPlaneError> {
        let _lifecycle = self.inner.lifecycle.lock().await;
        let process = self.running().api_server.take();
        drop(process);
        Ok(())
    }

    /// Starts the API server again, on the same port and with the same data. If it runs, kills it first. Returns when
    /// it is ready.
    ///
    /// Dropping the future leaves the API server stopped.
    ///
    /// # Errors
    ///
    /// When the API server ends or is not ready within 60 s, for example because another process took the port
    /// meanwhile.
    pub async fn restart(&self) -> Result<(), ControlPlaneError> {
        let _lifecycle = self.inner.lifecycle.lock().await;
        let old = self.running().api_server.take();
        drop(old);
        let (process, client) = self.inner.server.launch().await?;
        let mut running = self.running();
        running.api_server = Some(process);
        running.client = client;
        Ok(())
    }

    /// Freezes the API server (SIGSTOP): connections stay open, the kernel accepts new ones, and no
    /// request is answered.
    ///
    /// # Errors
    ///
    /// When it is stopped.
    pub fn pause(&self) -> Result<(), ControlPlaneError> {
        self.api_server(Process::pause)
    }

    /// Resumes a frozen API server (SIGCONT).
    ///
    /// # Errors
    ///
    /// When it is stopped.
    pub fn resume(&self) -> Result<(), ControlPlaneError> {
        self.api_server(Process::resume)
    }

    /// The audit log so far. A request is logged when its answer is complete, a watch when it has started.
    ///
    /// # Errors
    ///
    /// When the control plane was started without [`audit`](super::ControlPlaneBuilder::audit).
    pub async fn audit(&self) -> Result<AuditLog, ControlPlaneError> {
        self.audit_since(AuditMark::default()).await
    }

    /// The audit log after a mark that an earlier log has returned.
    ///
    /// # Errors
    ///
    /// As [`audit`](Self::audit).
    pub async fn audit_since(&self, mark: AuditMark) -> Result<AuditLog, ControlPlaneError> {
        if !self.inner.server.audit {
            return Err(ControlPlaneError::Unsupported(format!(
                "{} has no audit log: start it with ControlPlane::builder().audit(true)",
                self.name(),
            )));
        }
        let path = self.inner.server.files.audit_log();
        // Parsing a long log takes time, so it does not run on the executor.
        let read = tokio::task::spawn_blocking(move || AuditLog::read(&path, mark)).await;
        read.map_err(|error| ControlPlaneError::io("reading the audit log")(error.into()))?
    }

    /// The end of the API server's log, for the message of a failing test.
    pub fn log_tail(&self) -> String {
        match &self.running().api_server {
            Some(process) => process.log_tail(),
            None => "(stopped)".to_owned(),
        }
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        self.inner.server.identity.clone()
    }

    pub(super) fn client_certificate(
        &self,
        user: &str,
        groups: &[String],
        valid_for: Option<Duration>,
    ) -> Result<Credentials, ControlPlaneError> {
        pki::client(&self.inner.server.identity.clients, user, groups, valid_for)
    }

    async fn start_controller_manager(&self) -> Result<(), ControlPlaneError> {
        let server = &self.inner.server;
        let program = server.etcd.binaries().controller_manager()?;
        let user = "system:kube-controller-manager";
        let credentials = self.client_certificate(user, &["system:masters".to_owned()], None)?;
        let kubeconfig = server.kubeconfig(credentials);
        let process =
            controller_manager::start(&program, &server.files, &kubeconfig, &self.client(), &server.name)
                .await?;
        self.running().controller_manager = Some(process);
        Ok(())
    }

    fn api_server<T>(
        &self,
        act: impl FnOnce(&Process) -> Result<T, ControlPlaneError>,
    ) -> Result<T, ControlPlaneError> {
        match &self.running().api_server {
            Some(process) => act(process),
            None => Err(ControlPlaneError::Unsupported(format!(
                "{} is stopped: restart() it first",
                self.name()
            ))),
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.inner.running.lock()
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("name", &self.name())
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}
