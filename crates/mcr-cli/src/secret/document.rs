//! The kubeconfig that goes into the Secret.

use anyhow::Context;
use serde_json::json;

use super::plan::{Plan, base64};

/// A kubeconfig with one context, named like the Secret. All data is inline, so that it works as an untrusted
/// kubeconfig.
pub(super) fn kubeconfig(plan: &Plan, token: &str) -> anyhow::Result<String> {
    let name = &plan.name;
    let mut cluster = json!({
        "server": plan.server,
        "certificate-authority-data": base64(&plan.authority),
    });
    if let Some(server_name) = &plan.tls_server_name {
        cluster["tls-server-name"] = server_name.as_str().into();
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": plan.account}}],
        "current-context": name,
        "users": [{"name": plan.account, "user": {"token": token}}],
    });
    serde_saphyr::to_string(&config).context("the kubeconfig can't be written as YAML")
}
