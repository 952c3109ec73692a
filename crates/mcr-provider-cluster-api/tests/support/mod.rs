//! What the tests share: a simulated hub with the CRD of Cluster API, and its objects.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses its part"
)]

use std::time::Duration;

use mcr_core::WatchSettings;
use mcr_provider_cluster_api::{CLUSTER_NAME_LABEL, ClusterApiProvider, ClusterApiProviderBuilder};
pub(crate) use mcr_testkit::discovery::{Followed as Received, line, locally};
use mcr_testkit::sim::{SimBuilder, SimCluster};
use serde_json::{Value, json};

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The CRD of the kind Cluster, which serves these versions and stores the last one.
pub(crate) fn crd(versions: &[&str]) -> Value {
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": name == versions.last().unwrap(),
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "Cluster", "listKind": "ClusterList", "plural": "clusters", "singular": "cluster"},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// A hub with Cluster API.
pub(crate) fn hub() -> SimCluster {
    hub_of(SimCluster::builder(), &["v1beta1", "v1beta2"])
}

pub(crate) fn hub_of(builder: SimBuilder, versions: &[&str]) -> SimCluster {
    let hub = builder.build();
    hub.create(crd(versions)).unwrap();
    hub
}

/// A Cluster of v1beta2 that is not initialized.
pub(crate) fn cluster(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace, "labels": {"region": "eu"}},
        "spec": {
            "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevCluster", "name": name},
            "topology": {"classRef": {"name": "quick-start"}, "version": "v1.36.1"},
        },
        "status": {"phase": "Provisioning"},
    })
}

/// The same, initialized.
pub(crate) fn initialized(mut cluster: Value) -> Value {
    cluster["status"]["phase"] = "Provisioned".into();
    cluster["status"]["initialization"] =
        json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
    cluster
}

/// The Secret of a Cluster.
pub(crate) fn secret(namespace: &str, cluster: &str, kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"), "namespace": namespace, "labels": {CLUSTER_NAME_LABEL: cluster},
        },
        "data": {"value": base64(kubeconfig)},
    })
}

/// A kubeconfig of a cluster where nothing answers.
pub(crate) fn kubeconfig(token: &str) -> String {
    format!(
        "current-context: one\n\
         contexts: [{{name: one, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n"
    )
}

/// A provider whose pauses are short.
pub(crate) fn builder(hub: &SimCluster) -> ClusterApiProviderBuilder {
    let mut watch = WatchSettings::default();
    watch.retry_cap = Duration::from_millis(200);
    ClusterApiProvider::builder()
        .client(hub.client())
        .access_policy(locally())
        .times(watch, PATIENCE, PATIENCE, Duration::from_millis(20))
}

/// How often a Secret was read.
pub(crate) fn gets(hub: &SimCluster) -> usize {
    hub.audit()
        .count(|event| event.verb == "get" && event.resource == "secrets" && event.is_start())
}
