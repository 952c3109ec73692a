//! What the tests share: a simulated hub with the CRD of the Cluster Inventory API, and its objects.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses its part"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use mcr_core::{AccessPolicy, AllowedPlugin, CredentialPluginPolicy, WatchSettings};
use mcr_provider_cluster_inventory::{
    AccessProviderConfig, AccessProviders, CONSUMER_LABEL, ClusterInventoryProvider,
    ClusterInventoryProviderBuilder, DECISION_KEY_LABEL, PLACEMENT_KEY_LABEL, PROFILE_LABEL,
};
pub(crate) use mcr_testkit::discovery::{Followed as Received, line};
use mcr_testkit::{
    discovery,
    sim::{SimBuilder, SimCluster, SimRule, SimUser},
};
use serde_json::{Value, json};

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";
pub(crate) const DECISIONS: &str = "placementdecisions.multicluster.x-k8s.io";

/// The rights that the provider needs.
pub(crate) const MANIFEST: &str = include_str!("../../deploy/rbac.yaml");

pub(crate) fn rules(manifest: &str) -> Vec<SimRule> {
    SimRule::of_role(manifest).unwrap()
}

/// A client of the hub with exactly the rights of the manifest.
pub(crate) fn client(hub: &SimCluster) -> kube::Client {
    let user = rules(MANIFEST)
        .into_iter()
        .fold(SimUser::new("manifest"), SimUser::rule);
    hub.set_user("manifest", user);
    hub.client_with_token("manifest")
}

/// What clusters may do here, where all of them are on this machine.
pub(crate) fn locally(plugins: &[&Path]) -> AccessPolicy {
    let allowed = plugins
        .iter()
        .map(|plugin| AllowedPlugin::new(*plugin).cluster_info(true));
    discovery::locally().credential_plugins(CredentialPluginPolicy::allowlist(allowed))
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The CRD of the kind ClusterProfile, which serves these versions and stores the first one.
pub(crate) fn crd(versions: &[&str]) -> Value {
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": name == &versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": PROFILES},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {
                "kind": "ClusterProfile", "listKind": "ClusterProfileList", "plural": "clusterprofiles",
                "singular": "clusterprofile",
            },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// The CRD of the kind PlacementDecision.
pub(crate) fn decisions_crd() -> Value {
    let mut crd = crd(&["v1alpha1"]);
    crd["metadata"]["name"] = DECISIONS.into();
    crd["spec"]["names"] = json!({
        "kind": "PlacementDecision", "listKind": "PlacementDecisionList", "plural": "placementdecisions",
        "singular": "placementdecision",
    });
    crd
}

/// A PlacementDecision of the placement `web` with this index, which names these ClusterProfiles: `name` or `namespace/name`.
pub(crate) fn decision(namespace: &str, index: usize, names: &[&str]) -> Value {
    let name = |name: &&str| match name.split_once('/') {
        Some((namespace, name)) => json!({"clusterProfileRef": {"namespace": namespace, "name": name}}),
        None => json!({"clusterProfileRef": {"name": name}, "reason": "it is near"}),
    };
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision",
        "metadata": {
            "name": format!("web-{index}"), "namespace": namespace,
            "labels": {
                PLACEMENT_KEY_LABEL: "web", DECISION_KEY_LABEL: "web-7f9c",
                "multicluster.x-k8s.io/decision-index": index.to_string(),
            },
        },
        "decisions": names.iter().map(name).collect::<Vec<_>>(),
        "schedulerName": "scheduler",
    })
}

pub(crate) fn create_namespace(hub: &SimCluster, name: &str) {
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .unwrap();
}

/// A hub with the Cluster Inventory API.
pub(crate) fn hub() -> SimCluster {
    hub_of(SimCluster::builder(), &["v1alpha1", "v1alpha2"])
}

pub(crate) fn hub_of(builder: SimBuilder, versions: &[&str]) -> SimCluster {
    let hub = builder.build();
    hub.create(crd(versions)).unwrap();
    hub
}

/// A ClusterProfile of v1alpha1 that is ready, and offers access at this address by the access provider `p`.
pub(crate) fn profile(namespace: &str, name: &str, server: &str) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace, "labels": {"x-k8s.io/cluster-manager": "ocm"}},
        "spec": {"displayName": name, "clusterManager": {"name": "ocm"}},
        "status": {
            "conditions": [condition("ControlPlaneHealthy", "True", "")],
            "version": {"kubernetes": "v1.36.1"},
            "properties": [{"name": "region", "value": "eu", "lastObservedTime": "2026-01-01T00:00:00Z"}],
            "accessProviders": [{"name": "p", "cluster": {"server": server}}],
        },
    })
}

pub(crate) fn condition(type_: &str, status: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": "Why", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// The same with these extensions.
pub(crate) fn extended(mut profile: Value, extensions: &[(&str, Value)]) -> Value {
    let extensions = extensions
        .iter()
        .map(|(name, extension)| json!({"name": name, "extension": extension}));
    profile["status"]["accessProviders"][0]["cluster"]["extensions"] = extensions.collect();
    profile
}

/// The Secret of a ClusterProfile for the consumer `me`.
pub(crate) fn secret(namespace: &str, profile: &str, kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("{profile}-for-me"), "namespace": namespace,
            "labels": {CONSUMER_LABEL: "me", PROFILE_LABEL: profile},
        },
        "data": {"Config": base64(kubeconfig)},
    })
}

pub(crate) fn change(hub: &SimCluster, resource: &str, key: &str, change: impl FnOnce(&mut Value)) {
    let mut there = hub.get(resource, key).unwrap();
    change(&mut there);
    hub.update(there).unwrap();
}

/// The plugin of the access provider `p`, which is never run.
pub(crate) fn providers() -> AccessProviders {
    AccessProviders::new([AccessProviderConfig::new("p", "/plugins/p")]).unwrap()
}

/// A provider whose pauses are short, with the rights of the manifest.
pub(crate) fn builder(hub: &SimCluster) -> ClusterInventoryProviderBuilder {
    timed(ClusterInventoryProvider::builder())
        .client(client(hub))
        .access_policy(locally(&[Path::new("/plugins/p")]))
}

pub(crate) fn timed(builder: ClusterInventoryProviderBuilder) -> ClusterInventoryProviderBuilder {
    let mut watch = WatchSettings::default();
    watch.retry_cap = Duration::from_millis(200);
    builder.times(watch, PATIENCE, PATIENCE)
}

/// A folder that goes with its owner.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mcr-inventory-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A plugin with this text, for `sh`.
    pub(crate) fn plugin(&self, text: &str) -> PathBuf {
        let path = self.0.join("plugin");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
