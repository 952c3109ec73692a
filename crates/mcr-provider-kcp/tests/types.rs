//! kcp's own kinds: nothing of their JSON is lost on the way through the types.

#![allow(clippy::unwrap_used, reason = "tests")]

use kube::Resource;
use mcr_provider_kcp::api::{apis::v1alpha2::APIBinding, core::v1alpha1::LogicalCluster, find, is_true};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name, ".json"))
    };
}

/// Reads the object, and checks that writing it gives the same JSON, and that the type is of this kind.
#[track_caller]
fn round_trip<K>(json: &str) -> K
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let before: Value = serde_json::from_str(json).unwrap();
    let object: K = serde_json::from_str(json).unwrap();
    let after = serde_json::to_value(&object).unwrap();
    assert_eq!(after, before);
    assert_eq!(
        (
            before["apiVersion"].as_str().unwrap(),
            before["kind"].as_str().unwrap()
        ),
        (&*K::api_version(&()), &*K::kind(&()))
    );
    object
}

#[test]
fn bindings_lose_nothing() {
    let binding: APIBinding = round_trip(fixture!("apibinding-v1alpha2"));
    let claim = &binding.spec.permission_claims[0];
    assert_eq!(
        (&*claim.claim.claim.resource, &*claim.state),
        ("events", "Accepted")
    );
    let status = binding.status.unwrap();
    let applied = find(&status.conditions, "PermissionClaimsApplied").unwrap();
    assert_eq!(applied.severity.as_deref(), Some("Warning"));
    assert!(is_true(&status.conditions, "Ready"));
    assert_eq!(
        status.bound_resources[0].schema.uid,
        "b7d7ad9c-0e5a-4d2f-8c55-5cf7f8a4d9c2"
    );
}

#[test]
fn logical_clusters_lose_nothing() {
    let cluster: LogicalCluster = round_trip(fixture!("logicalcluster"));
    assert_eq!(cluster.spec.owner.unwrap().cluster, "root");
}

/// A new binding has no status.
#[test]
fn a_binding_that_kcp_has_not_handled_yet_can_be_read() {
    let binding: APIBinding = round_trip(
        r#"{"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "mongodb"},
            "spec": {"reference": {"export": {"name": "mongodb"}}}, "status": {}}"#,
    );
    assert_eq!(binding.status.unwrap().phase, None);
}
