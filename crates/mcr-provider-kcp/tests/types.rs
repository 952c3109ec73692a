//! kcp's own kinds: nothing of their JSON is lost on the way through the types.

#![allow(clippy::unwrap_used, reason = "tests")]

use kube::Resource;
use mcr_provider_kcp::api::{
    apis::{v1alpha1, v1alpha2},
    core::v1alpha1::LogicalCluster,
    find, is_true,
    tenancy::v1alpha1::{Workspace, WorkspaceType},
};
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
fn exports_lose_nothing() {
    let export: v1alpha2::APIExport = round_trip(fixture!("apiexport-v1alpha2"));
    let storage = export.spec.resources[1].storage.as_ref().unwrap();
    assert_eq!(storage.virtual_.as_ref().unwrap().reference.name, "regions");
    assert!(is_true(&export.status.unwrap().conditions, "IdentityValid"));
    let export: v1alpha1::APIExport = round_trip(fixture!("apiexport-v1alpha1"));
    assert_eq!(export.spec.permission_claims[0].all, Some(true));
}

#[test]
fn bindings_lose_nothing() {
    let binding: v1alpha2::APIBinding = round_trip(fixture!("apibinding-v1alpha2"));
    let claim = &binding.spec.permission_claims[0];
    assert_eq!(
        (&*claim.claim.claim.resource, &*claim.state),
        ("events", "Accepted")
    );
    let status = binding.status.unwrap();
    let applied = find(&status.conditions, "PermissionClaimsApplied").unwrap();
    assert_eq!(applied.severity.as_deref(), Some("Warning"));
    assert_eq!(
        status.bound_resources[0].schema.uid,
        "b7d7ad9c-0e5a-4d2f-8c55-5cf7f8a4d9c2"
    );
    let binding: v1alpha1::APIBinding = round_trip(fixture!("apibinding-v1alpha1"));
    assert_eq!(binding.status.unwrap().phase.as_deref(), Some("Binding"));
}

#[test]
fn endpoint_slices_and_schemas_lose_nothing() {
    let slice: v1alpha1::APIExportEndpointSlice = round_trip(fixture!("apiexportendpointslice"));
    assert_eq!(slice.status.unwrap().endpoints.len(), 2);
    let schema: v1alpha1::APIResourceSchema = round_trip(fixture!("apiresourceschema"));
    assert_eq!(schema.spec.names.short_names, ["mdbc"]);
}

#[test]
fn workspaces_their_types_and_logical_clusters_lose_nothing() {
    let workspace: Workspace = round_trip(fixture!("workspace"));
    assert_eq!(workspace.spec.cluster.as_deref(), Some("344qdshnqz45fjlp"));
    assert!(
        workspace
            .spec
            .url
            .unwrap()
            .ends_with("/clusters/344qdshnqz45fjlp")
    );
    let of_type: WorkspaceType = round_trip(fixture!("workspacetype"));
    assert_eq!(of_type.spec.default_api_bindings[0].export, "mongodb");
    let cluster: LogicalCluster = round_trip(fixture!("logicalcluster"));
    assert_eq!(cluster.spec.owner.unwrap().cluster, "root");
}

/// A new binding has no status, and an unused export has no endpoints.
#[test]
fn objects_that_kcp_has_not_handled_yet_can_be_read() {
    let binding: v1alpha2::APIBinding = round_trip(
        r#"{"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "mongodb"},
            "spec": {"reference": {"export": {"name": "mongodb"}}}, "status": {}}"#,
    );
    assert_eq!(binding.status.unwrap().phase, None);
    let slice: v1alpha1::APIExportEndpointSlice = round_trip(
        r#"{"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "mongodb"},
            "spec": {"export": {"name": "mongodb"}}}"#,
    );
    assert!(slice.status.is_none());
}
