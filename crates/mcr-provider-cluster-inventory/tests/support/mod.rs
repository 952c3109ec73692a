//! What the tests share: a simulated hub with the objects of `steps.yaml`.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use mcr_core::{AccessPolicy, AllowedPlugin, CredentialPluginPolicy};
use mcr_testkit::{
    discovery,
    sim::{SimBuilder, SimCluster, SimRule, SimUser},
    steps::Templates,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

/// The rights that the provider needs.
pub(crate) const MANIFEST: &str = include_str!("../../deploy/rbac.yaml");

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| Templates::of(include_str!("../steps.yaml")));

/// An object of `steps.yaml`, with a merge patch.
pub(crate) fn object(named: &str, more: Value) -> Value {
    TEMPLATES.object(named, &more)
}

/// A hub with the Cluster Inventory API.
pub(crate) fn hub(builder: SimBuilder) -> SimCluster {
    let hub = builder.build();
    TEMPLATES.prepare(&hub);
    hub
}

/// A client of the hub with exactly the rights of the manifest.
pub(crate) fn client(hub: &SimCluster) -> kube::Client {
    let rules = SimRule::of_role(MANIFEST).unwrap().into_iter();
    hub.set_user("manifest", rules.fold(SimUser::new("manifest"), SimUser::rule));
    hub.client_with_token("manifest")
}

/// What clusters may do here, where all of them are on this machine.
pub(crate) fn loopback_policy(plugins: &[&Path]) -> AccessPolicy {
    let allowed = plugins
        .iter()
        .map(|plugin| AllowedPlugin::new(*plugin).cluster_info(true));
    discovery::loopback_policy().credential_plugins(CredentialPluginPolicy::allowlist(allowed))
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A merge patch for the access of a ClusterProfile: its address and CA, and the configuration of the plugin.
pub(crate) fn access(provider: &str, url: &str, ca_pem: &str, config: Value) -> Value {
    json!([{"name": provider, "cluster": {
        "server": url, "certificate-authority-data": base64(ca_pem),
        "extensions": [{"name": mcr_provider_cluster_inventory::EXEC_EXTENSION, "extension": config}],
    }}])
}

/// A plugin in this folder with this text, for `sh`.
pub(crate) fn plugin(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("plugin");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The text of a plugin that prints this token.
pub(crate) fn prints(token: &str) -> String {
    format!(
        "printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"%s\"}}}}' \"{token}\""
    )
}
