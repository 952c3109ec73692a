//! The kubeconfig that goes into the Secret.

use anyhow::Context;
use secrecy::ExposeSecret;
use serde_json::json;

use super::plan::{Plan, base64};

/// A kubeconfig with one context, named like the Secret. All data is inline, so that it works as an untrusted
/// kubeconfig.
pub(super) fn kubeconfig(plan: &Plan, token: &str) -> anyhow::Result<String> {
    with_cluster(plan, token, &plan.server, None)
}

/// The same kubeconfig for this machine, to try the token.
pub(super) fn kubeconfig_here(plan: &Plan, token: &str) -> anyhow::Result<String> {
    let proxy = plan.proxy_here.as_ref().map(ExposeSecret::expose_secret);
    with_cluster(plan, token, &plan.server_here, proxy)
}

fn with_cluster(plan: &Plan, token: &str, server: &str, proxy: Option<&str>) -> anyhow::Result<String> {
    let name = &plan.name;
    let mut cluster = json!({
        "server": server,
        "certificate-authority-data": base64(&plan.authority),
    });
    if let Some(server_name) = &plan.tls_server_name {
        cluster["tls-server-name"] = server_name.as_str().into();
    }
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = proxy.into();
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
