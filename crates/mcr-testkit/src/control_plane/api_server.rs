use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::pki::{self, Authority, Pair, SigningKey};
use super::process::Process;
use super::{ControlPlaneError, Credentials, Etcd, KubeconfigBuilder, audit, kubeconfig};

/// The files in a control plane's folder that its processes read and write.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
}

impl Files {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    pub(super) fn write(&self, name: &str, content: &str) -> Result<(), ControlPlaneError> {
        let path = self.path(name);
        std::fs::write(&path, content).map_err(ControlPlaneError::io(format!("writing {}", path.display())))
    }

    /// Writes all files that an API server reads.
    pub(super) fn write_all(&self, identity: &Identity) -> Result<(), ControlPlaneError> {
        let Pair { certificate, key } = pki::server(&identity.serving)?;
        let files = [
            ("client-ca.crt", identity.clients.pem()),
            ("service-account.key", identity.tokens.private_pem()),
            ("service-account.pub", identity.tokens.public_pem()),
            ("audit-policy.yaml", audit::POLICY.to_owned()),
            // Created empty, so that it can be read before the first request is logged.
            ("audit.log", String::new()),
            ("serving.crt", certificate),
            ("serving.key", key),
            ("serving-ca.crt", identity.serving.pem()),
        ];
        files
            .iter()
            .try_for_each(|(name, content)| self.write(name, content))
    }
}

/// What all API servers of one cluster have in common.
#[derive(Debug)]
pub(super) struct Identity {
    etcd_prefix: String,
    pub(super) clients: Arc<Authority>,
    pub(super) serving: Arc<Authority>,
    tokens: SigningKey,
}

impl Identity {
    pub(super) fn new(
        name: &str,
        number: usize,
        authority: Option<Arc<Authority>>,
    ) -> Result<Self, ControlPlaneError> {
        let (clients, serving) = match authority {
            Some(authority) => (authority.clone(), authority),
            None => (
                Arc::new(pki::authority(&format!("clients of {name}"))?),
                Arc::new(pki::authority(&format!("{name} {number}"))?),
            ),
        };
        Ok(Self {
            etcd_prefix: format!("/{}-{number}", std::process::id()),
            clients,
            serving,
            tokens: SigningKey::new()?,
        })
    }
}

/// An API server that can be started several times.
pub(super) struct Server {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) audit: bool,
    pub(super) args: Vec<String>,
    pub(super) identity: Arc<Identity>,
    pub(super) admin: Credentials,
    pub(super) files: Files,
    pub(super) etcd: Etcd,
}

impl Server {
    /// Starts the server and waits until it is ready. Returns a new client, because the connection pool of an older
    /// client may hold dead connections.
    pub(super) async fn launch(&self) -> Result<(Process, Client), ControlPlaneError> {
        let _permit = start_permit().await;
        let client = kubeconfig::client(&self.kubeconfig(self.admin.clone())).await?;
        let (program, log) = (
            self.etcd.binaries().api_server(),
            self.files.path("kube-apiserver.log"),
        );
        let name = format!("kube-apiserver of {}", self.name);
        let process = Process::start(&name, &program, &self.arguments(), log, &self.files.folder)?;
        // `/readyz` succeeds slightly before the server has created the default namespaces, which every test uses.
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            process.until_ready(async || get(&client, path).await).await?;
        }
        Ok((process, client))
    }

    fn arguments(&self) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.files.path(name).display());
        let mut args = vec![
            format!("--etcd-servers={}", self.etcd.url()),
            format!("--etcd-prefix={}", self.identity.etcd_prefix),
            "--bind-address=127.0.0.1".to_owned(),
            // Without this flag the server looks up the address of the default route, and there may be none.
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", self.files.folder.display()),
            file("tls-cert-file", "serving.crt"),
            file("tls-private-key-file", "serving.key"),
            file("client-ca-file", "client-ca.crt"),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            file("service-account-key-file", "service-account.pub"),
            file("service-account-signing-key-file", "service-account.key"),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--allow-privileged=true".to_owned(),
            // This plugin refuses pods until a controller manager has created the default service account of the
            // namespace.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // No client reaches this server through the `kubernetes` service.
            "--endpoint-reconciler-type=none".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if self.audit {
            args.push(file("audit-policy-file", "audit-policy.yaml"));
            args.push(file("audit-log-path", "audit.log"));
            args.push("--audit-log-format=json".to_owned());
            // The server logs a request before it finishes the answer, so a test can count requests without waiting.
            args.push("--audit-log-mode=blocking".to_owned());
            // The server must not rotate the file, because marks are offsets in it.
            args.push("--audit-log-maxsize=1000000".to_owned());
        }
        args.extend_from_slice(&self.args);
        args
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(super) fn kubeconfig(&self, credentials: Credentials) -> String {
        let ca = self.identity.serving.pem();
        let builder = KubeconfigBuilder::new().context(&self.name, self.url(), ca, credentials);
        builder.to_yaml()
    }
}

/// A permit to start a server. A start keeps one core busy for two seconds. Without a limit, a test binary that starts
/// a dozen servers at once would delay all of them, some beyond their deadline.
pub(super) async fn start_permit() -> Option<SemaphorePermit<'static>> {
    static STARTS: OnceLock<Semaphore> = OnceLock::new();
    let starts = STARTS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        Semaphore::new(cores.max(2))
    });
    // The semaphore is never closed.
    starts.acquire().await.ok()
}

/// Sends a GET and returns the body as text. A status that is not a success is an error.
pub(super) async fn get(client: &Client, path: &str) -> Result<String, String> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(Duration::from_secs(20), client.request_text(request)).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("GET {path} was not answered within 20 s")),
    }
}
