use std::path::Path;

use kube::Client;

use super::ControlPlaneError;
use super::api_server::{Files, get};
use super::process::Process;

/// Starts a controller manager and waits until it works.
pub(super) async fn start(
    program: &Path,
    files: &Files,
    kubeconfig: &str,
    client: &Client,
    name: &str,
) -> Result<Process, ControlPlaneError> {
    files.write("kube-controller-manager.yaml", kubeconfig)?;
    let file = |flag: &str, name: &str| format!("--{flag}={}", files.path(name).display());
    let args = [
        file("kubeconfig", "kube-controller-manager.yaml"),
        file("service-account-private-key-file", "service-account.key"),
        file("root-ca-file", "serving-ca.crt"),
        // This is the only controller manager, and leader election would take seconds.
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--use-service-account-credentials=false".to_owned(),
    ];
    let log = files.path("kube-controller-manager.log");
    let name = format!("kube-controller-manager of {name}");
    let process = Process::start(&name, program, &args, log, &files.folder)?;
    // The controller manager has no health port. It works when it has created the default service account of a
    // namespace.
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    process.until_ready(async || get(client, account).await).await?;
    Ok(process)
}
