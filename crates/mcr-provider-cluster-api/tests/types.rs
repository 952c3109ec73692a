//! The types of Cluster API, compared with its published schema and with Clusters as it writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use mcr_provider_cluster_api::{v1beta1, v1beta2};
use mcr_testkit::schema::{filled, paths};
use serde_json::{Value, json};

/// The paths and types of the CRD of Cluster API 1.14, of those objects of it that the types here speak of.
const SCHEMA: &str = include_str!("data/schema.txt");

/// Fields of these objects that mean nothing to consumers.
const LEFT_OUT: [&str; 8] = [
    "v1beta1 spec.controlPlaneRef.fieldPath",
    "v1beta1 spec.controlPlaneRef.resourceVersion",
    "v1beta1 spec.controlPlaneRef.uid",
    "v1beta1 spec.infrastructureRef.fieldPath",
    "v1beta1 spec.infrastructureRef.resourceVersion",
    "v1beta1 spec.infrastructureRef.uid",
    "v1beta1 status.v1beta2.controlPlane.upgradePlan",
    "v1beta2 status.controlPlane.upgradePlan",
];

#[test]
fn each_field_is_in_the_published_schema_with_the_same_type() {
    let mut left_out = Vec::new();
    for version in ["v1beta1", "v1beta2"] {
        let empty = json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster", "metadata": {"name": "a"},
        });
        let full = filled(empty, SCHEMA, version);
        // A field of another type can't be decoded, and one of another name is lost.
        let decoded = match version {
            "v1beta1" => {
                serde_json::to_value(serde_json::from_value::<v1beta1::Cluster>(full.clone()).unwrap())
            }
            _ => serde_json::to_value(serde_json::from_value::<v1beta2::Cluster>(full.clone()).unwrap()),
        };
        let (published, ours) = (paths(&full), paths(&decoded.unwrap()));
        assert_eq!(
            ours.difference(&published).collect::<Vec<_>>(),
            [""; 0],
            "only here, in {version}"
        );
        let missing = published
            .difference(&ours)
            .filter(|path| !path.contains("upgradePlan["));
        left_out.extend(missing.map(|path| format!("{version} {path}")));
    }
    assert_eq!(left_out, LEFT_OUT);
}

/// As Cluster API 1.14 writes it, with KubeadmControlPlane and a ClusterClass.
fn new() -> Value {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 2,
            "lastTransitionTime": "2026-11-22T09:00:00Z",
        })
    };
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": "w1", "namespace": "default", "uid": "5d0c2b8e-0e32-4f4b-9a9e-2f2f4f6d8c10", "resourceVersion": "1234",
            "generation": 2, "creationTimestamp": "2026-11-22T08:59:00Z", "finalizers": ["cluster.cluster.x-k8s.io"],
            "labels": {"cluster.x-k8s.io/cluster-name": "w1", "topology.cluster.x-k8s.io/owned": ""},
        },
        "spec": {
            "clusterNetwork": {"services": {"cidrBlocks": ["10.128.0.0/12"]}},
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 36443},
            "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "w1-x2k"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevCluster", "name": "w1-9fz"},
            "topology": {
                "classRef": {"name": "in-memory"}, "version": "v1.36.1", "controlPlane": {"replicas": 1},
                "variables": [{"name": "x", "value": {"y": 1}}],
            },
        },
        "status": {
            "phase": "Provisioned", "observedGeneration": 2,
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "controlPlane": {
                "desiredReplicas": 1, "replicas": 1, "readyReplicas": 0, "availableReplicas": 0, "upToDateReplicas": 1,
                "versions": [{"version": "v1.36.1", "replicas": 1}],
            },
            "workers": {"desiredReplicas": 0},
            "failureDomains": [{"name": "a", "controlPlane": true}],
            "conditions": [
                condition("Available", "False", "NotAvailable"),
                condition("ControlPlaneInitialized", "True", "Initialized"),
                condition("RemoteConnectionProbe", "True", "ProbeSucceeded"),
            ],
            "deprecated": {"v1beta1": {"conditions": [{
                "type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": "2026-11-22T09:00:00Z",
            }]}},
        },
    })
}

/// The same Cluster as v1beta1.
fn old() -> Value {
    let new = new();
    let reference = |of: &str, group: &str| {
        let mut reference = new["spec"][of].clone();
        reference.as_object_mut().unwrap().remove("apiGroup");
        reference["apiVersion"] = group.into();
        reference["namespace"] = "default".into();
        reference
    };
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": new["metadata"],
        "spec": {
            "clusterNetwork": new["spec"]["clusterNetwork"],
            "controlPlaneEndpoint": new["spec"]["controlPlaneEndpoint"],
            "controlPlaneRef": reference("controlPlaneRef", "controlplane.cluster.x-k8s.io/v1beta1"),
            "infrastructureRef": reference("infrastructureRef", "infrastructure.cluster.x-k8s.io/v1beta1"),
            "topology": {"class": "in-memory", "version": "v1.36.1", "controlPlane": {"replicas": 1}},
        },
        "status": {
            "phase": "Provisioned", "observedGeneration": 2, "infrastructureReady": true, "controlPlaneReady": true,
            "conditions": new["status"]["deprecated"]["v1beta1"]["conditions"],
            "failureDomains": {"a": {"controlPlane": true}},
            "v1beta2": {"conditions": new["status"]["conditions"], "controlPlane": new["status"]["controlPlane"]},
        },
    })
}

fn read_new(cluster: Value) -> v1beta2::Cluster {
    serde_json::from_value(cluster).unwrap()
}

fn read_old(cluster: Value) -> v1beta2::Cluster {
    serde_json::from_value::<v1beta1::Cluster>(cluster)
        .unwrap()
        .into()
}

#[test]
fn a_cluster_is_the_same_in_both_versions() {
    let new = read_new(new());
    assert_eq!(read_old(old()), new);
    assert!(new.is_control_plane_initialized());
    assert_eq!(new.condition("Available").unwrap().status, "False");
}

#[test]
fn initialized_goes_by_the_field_or_by_the_condition() {
    let with = |status: Value| {
        let mut cluster = new();
        cluster["status"] = status;
        read_new(cluster)
    };
    let condition = |status: &str| {
        json!([{
            "type": "ControlPlaneInitialized", "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-11-22T09:00:00Z",
        }])
    };
    for (status, initialized) in [
        (json!({}), false),
        (
            json!({"initialization": {"infrastructureProvisioned": true}}),
            false,
        ),
        (
            json!({"initialization": {"controlPlaneInitialized": false}, "conditions": condition("False")}),
            false,
        ),
        (json!({"conditions": condition("Unknown")}), false),
        (json!({"initialization": {"controlPlaneInitialized": true}}), true),
        // Without a controlPlaneRef.
        (
            json!({"initialization": {"infrastructureProvisioned": true}, "conditions": condition("True")}),
            true,
        ),
        (
            json!({"deprecated": {"v1beta1": {"conditions": condition("True")}}}),
            true,
        ),
    ] {
        assert_eq!(
            with(status.clone()).is_control_plane_initialized(),
            initialized,
            "{status}"
        );
    }
    let mut none = new();
    none.as_object_mut().unwrap().remove("status");
    assert!(!read_new(none).is_control_plane_initialized());

    // Cluster API 1.10 and older: the condition, or the field of v1beta1.
    let mut cluster = old();
    cluster["status"].as_object_mut().unwrap().remove("v1beta2");
    cluster["status"]["controlPlaneReady"] = false.into();
    assert!(
        read_old(cluster.clone()).is_control_plane_initialized(),
        "by the condition"
    );
    cluster["status"]["conditions"] = condition("False");
    assert!(!read_old(cluster.clone()).is_control_plane_initialized());
    cluster["status"]["controlPlaneReady"] = true.into();
    assert!(read_old(cluster).is_control_plane_initialized());
}
