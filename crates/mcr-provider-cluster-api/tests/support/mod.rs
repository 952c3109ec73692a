//! What the tests share: a simulated hub with the CRD of Cluster API, and its objects.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses its part"
)]

use std::time::Duration;

use futures::StreamExt;
use mcr_core::{AccessPolicy, AddressPolicy, Availability, Change, Discovery, Provider, WatchSettings};
use mcr_provider_cluster_api::{CLUSTER_NAME_LABEL, ClusterApiProvider, ClusterApiProviderBuilder};
use mcr_testkit::sim::{SimBuilder, SimCluster};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What kubeconfigs may do here, where all clusters are on this machine.
pub(crate) fn locally() -> AccessPolicy {
    AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true))
}

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

/// A discovery that is followed.
pub(crate) struct Heard(pub(crate) Discovery);

impl Heard {
    pub(crate) fn of(provider: &impl Provider) -> Self {
        Self(provider.discover(CancellationToken::new()))
    }

    /// The next announcement.
    pub(crate) async fn next(&mut self) -> Change {
        timeout(PATIENCE, self.0.next())
            .await
            .expect("an announcement")
            .unwrap()
            .unwrap()
    }

    /// The next announcement, in short.
    pub(crate) async fn line(&mut self) -> String {
        line(&self.next().await)
    }

    /// The next announcements until this one.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            lines.push(self.line().await);
        }
        lines
    }

    /// The error that ends the discovery.
    pub(crate) async fn error(mut self) -> String {
        let item = timeout(PATIENCE, self.0.next()).await.expect("an error").unwrap();
        item.unwrap_err().to_string()
    }
}

pub(crate) fn line(change: &Change) -> String {
    match change {
        Change::Upsert(spec) => match &spec.availability {
            Availability::Suspended { reason } => format!("~{}: {reason}", spec.name),
            _ => format!("+{}", spec.name),
        },
        Change::Broken(broken) => format!("!{}: {}: {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    }
}

/// How often a Secret was read.
pub(crate) fn gets(hub: &SimCluster) -> usize {
    hub.audit()
        .count(|event| event.verb == "get" && event.resource == "secrets" && event.is_start())
}
