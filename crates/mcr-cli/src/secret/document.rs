//! The kubeconfig that goes into the Secret.

use anyhow::Context;
use secrecy::ExposeSecret;
use serde_json::json;

use super::plan::{Plan, base64};

/// A kubeconfig with one context, which has the name of the Secret. All data is inline, so that the kubeconfig can be
/// used as an untrusted one. With `here`, it has the address and the proxy for this machine, to test the token.
pub(super) fn kubeconfig(plan: &Plan, token: &str, here: bool) -> anyhow::Result<String> {
    let name = &plan.name;
    let mut cluster = json!({
        "server": if here { &plan.server_here } else { &plan.server },
        "certificate-authority-data": base64(&plan.authority),
    });
    if let Some(server_name) = &plan.tls_server_name {
        cluster["tls-server-name"] = server_name.as_str().into();
    }
    if let Some(proxy) = plan.proxy_here.as_ref().filter(|_| here) {
        cluster["proxy-url"] = proxy.expose_secret().into();
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
