//! Clusters whose infrastructure provider and control plane provider are the test itself. Everything else is done by Cluster API.

use mcr_testkit::control_plane::ControlPlane;
use serde_json::{Value, json};

use crate::objects::{BYO_CLUSTER, BYO_CONTROL_PLANE, CLUSTER, Objects, SECRET, base64, initialized};

/// A Cluster with a ByoCluster and a ByoControlPlane of the same name.
pub(crate) fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": CLUSTER.0, "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoCluster", "name": name},
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "ByoControlPlane", "name": name},
        },
    })
}

/// The Secret as a control plane provider writes it.
pub(crate) fn secret(name: &str, kubeconfig: impl AsRef<[u8]>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": format!("{name}-kubeconfig"), "labels": {"cluster.x-k8s.io/cluster-name": name}},
        "data": {"value": base64(kubeconfig)},
    })
}

/// Creates a Cluster as given, and the objects that it refers to.
pub(crate) async fn create(objects: &Objects, cluster: Value) {
    let name = text(&cluster["metadata"]["name"]);
    let endpoint = json!({"host": "127.0.0.1", "port": 1});
    let infrastructure = json!({
        "apiVersion": BYO_CLUSTER.0, "kind": BYO_CLUSTER.1, "metadata": {"name": name},
        "spec": {"controlPlaneEndpoint": endpoint},
    });
    let control_plane = json!({
        "apiVersion": BYO_CONTROL_PLANE.0, "kind": "ByoControlPlane", "metadata": {"name": name},
        "spec": {"version": "v1.36.1"},
    });
    objects.create(infrastructure).await;
    objects.create(control_plane).await;
    objects.create(cluster).await;
}

/// Reports that the infrastructure is there and the control plane is initialised.
pub(crate) async fn initialize(objects: &Objects, name: &str) {
    let provisioned = json!({"initialization": {"provisioned": true}});
    objects.status(BYO_CLUSTER, name, provisioned).await;
    let status = json!({
        "initialization": {"controlPlaneInitialized": true}, "version": "v1.36.1", "externalManagedControlPlane": true,
        "conditions": [{
            "type": "Available", "status": "True", "reason": "Available", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    objects.status(BYO_CONTROL_PLANE, name, status).await;
}

/// Creates an initialised cluster with its kubeconfig, and waits until Cluster API says so.
pub(crate) async fn ready(objects: &Objects, name: &str, kubeconfig: &str) -> Value {
    ready_as(objects, cluster(name), kubeconfig).await
}

/// The same for a Cluster as given.
pub(crate) async fn ready_as(objects: &Objects, cluster: Value, kubeconfig: &str) -> Value {
    let name = text(&cluster["metadata"]["name"]);
    create(objects, cluster).await;
    objects.create(secret(&name, kubeconfig)).await;
    initialize(objects, &name).await;
    is_initialized(objects, &name).await
}

/// Waits until Cluster API says that a cluster is initialised.
pub(crate) async fn is_initialized(objects: &Objects, name: &str) -> Value {
    objects.wait(CLUSTER, name, "is initialised", initialized).await
}

/// Replaces the kubeconfig in the Secret of a cluster.
pub(crate) async fn rewrite(objects: &Objects, name: &str, kubeconfig: impl AsRef<[u8]>) {
    let patch = json!({"data": {"value": base64(kubeconfig)}});
    objects.merge(SECRET, &format!("{name}-kubeconfig"), patch).await;
}

/// A kubeconfig of a user with this name who may do everything in a workload cluster.
pub(crate) async fn kubeconfig(plane: &ControlPlane, user: &str) -> String {
    use mcr_testkit::waiting::OrFail;
    let user = plane.user(user).groups(["system:masters"]).create().await;
    user.or_fail().kubeconfig()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
