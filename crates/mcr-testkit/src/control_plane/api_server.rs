use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::pki::{self, Authority, Pair, SigningKey};
use super::process::Process;
use super::{ControlPlaneError, audit};

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

    /// Writes the files that never change in the life of a control plane.
    pub(super) fn write_fixed(&self, client_ca: &str, tokens: &SigningKey) -> Result<(), ControlPlaneError> {
        self.write("client-ca.crt", client_ca)?;
        self.write("service-account.key", &tokens.private_pem())?;
        self.write("service-account.pub", &tokens.public_pem())?;
        self.write("audit-policy.yaml", audit::POLICY)?;
        // Created empty, so that it can be read before the first request is logged.
        self.write("audit.log", "")
    }

    /// Writes a server certificate of this authority, and the authority for clients.
    pub(super) fn write_serving(&self, authority: &Authority) -> Result<(), ControlPlaneError> {
        let Pair { certificate, key } = pki::server(authority)?;
        self.write("serving.crt", &certificate)?;
        self.write("serving.key", &key)?;
        self.write("serving-ca.crt", &authority.pem())
    }
}

/// The inputs of the command line.
pub(super) struct Arguments<'a> {
    pub(super) files: &'a Files,
    pub(super) etcd_url: String,
    pub(super) etcd_prefix: &'a str,
    pub(super) port: u16,
    pub(super) audit: bool,
    pub(super) extra: &'a [String],
}

impl Arguments<'_> {
    pub(super) fn to_vec(&self) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.files.path(name).display());
        let mut args = vec![
            format!("--etcd-servers={}", self.etcd_url),
            format!("--etcd-prefix={}", self.etcd_prefix),
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
            // This plugin refuses pods until a controller manager has made the default service account of the
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
        args.extend_from_slice(self.extra);
        args
    }
}

/// A permit to start a server. Starting keeps a core busy for two seconds; a test binary that starts
/// a dozen at once would make each of them late, and some too late.
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

/// Waits until the server is ready and has made its first namespace.
pub(super) async fn wait_ready(process: &Process, client: &Client) -> Result<(), ControlPlaneError> {
    // The server is ready a moment before it has made the default namespaces, which every test uses.
    for path in ["/readyz", "/api/v1/namespaces/default"] {
        process.until_ready(async || get(client, path).await).await?;
    }
    Ok(())
}

/// Starts the server. Returns before it is ready.
pub(super) fn start(
    program: &Path,
    arguments: &Arguments<'_>,
    name: &str,
) -> Result<Process, ControlPlaneError> {
    let log = arguments.files.path("kube-apiserver.log");
    let name = format!("kube-apiserver of {name}");
    Process::start(&name, program, &arguments.to_vec(), log, &arguments.files.folder)
}
