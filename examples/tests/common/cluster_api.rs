//! Objects of Cluster API, as its controllers write them.

use serde_json::{Value, json};

/// The kind `Cluster`. Its fields are not checked.
pub(crate) fn crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": {"kind": "Cluster", "plural": "clusters"},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// A Cluster. Its control plane is initialized or not.
pub(crate) fn cluster(namespace: &str, name: &str, initialized: bool) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"namespace": namespace, "name": name, "finalizers": ["cluster.cluster.x-k8s.io"]},
        "spec": {
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevCluster", "name": name},
        },
        "status": {
            "phase": "Provisioned",
            "initialization": {"controlPlaneInitialized": initialized, "infrastructureProvisioned": true},
            "controlPlane": {"versions": [{"version": "v1.36.1", "replicas": 1}]},
        },
    })
}

/// The Secret of a Cluster.
pub(crate) fn secret(namespace: &str, cluster: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "namespace": namespace, "name": format!("{cluster}-kubeconfig"),
            "labels": {"cluster.x-k8s.io/cluster-name": cluster},
        },
        "stringData": {"value": kubeconfig},
    })
}
