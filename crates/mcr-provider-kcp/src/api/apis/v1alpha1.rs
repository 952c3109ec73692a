//! Version `v1alpha1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::{
    APIExportStatus, APIResourceVersion, BindingReference, BoundAPIResource, Conversion, ExportReference,
    Identity, MaximalPermissionPolicy, Names,
};
use crate::api::condition::Condition;

/// The spec of an APIExport.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha1",
    kind = "APIExport",
    plural = "apiexports",
    singular = "apiexport",
    status = "APIExportStatus",
    derive = "PartialEq",
    schema = "disabled",
    doc = "An API that workspaces can bind."
)]
#[serde(rename_all = "camelCase")]
pub struct APIExportSpec {
    /// The names of the APIResourceSchemas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest_resource_schemas: Vec<String>,
    /// The secret behind the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The most that users of bindings may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximal_permission_policy: Option<MaximalPermissionPolicy>,
    /// Other kinds of the consumers that the provider asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<PermissionClaim>,
}

/// A kind of the consumers that a provider asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionClaim {
    /// The API group. Empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    /// The identity of the export that the kind belongs to. `None` or empty for built-in kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_hash: Option<String>,
    /// Whether all objects are claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// The objects that are claimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_selector: Vec<ResourceSelector>,
}

/// Selects objects by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSelector {
    /// The name. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The spec of an APIBinding.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha1",
    kind = "APIBinding",
    plural = "apibindings",
    singular = "apibinding",
    status = "APIBindingStatus",
    derive = "PartialEq",
    schema = "disabled",
    doc = "Binds an APIExport in a workspace."
)]
#[serde(rename_all = "camelCase")]
pub struct APIBindingSpec {
    /// The API.
    pub reference: BindingReference,
    /// The claims of the export that are accepted or rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<AcceptablePermissionClaim>,
}

/// A claim with the decision of the consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptablePermissionClaim {
    /// The claim.
    #[serde(flatten)]
    pub claim: PermissionClaim,
    /// `Accepted` or `Rejected`.
    pub state: String,
}

/// The status of an APIBinding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIBindingStatus {
    /// The id of the export's workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_export_cluster_name: Option<String>,
    /// The kinds that are bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_resources: Vec<BoundAPIResource>,
    /// Empty, `Binding` or `Bound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// `Ready`, `PermissionClaimsApplied` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The claims that are in effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_permission_claims: Vec<PermissionClaim>,
    /// The claims of the export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_permission_claims: Vec<PermissionClaim>,
}

/// The spec of an APIExportEndpointSlice.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha1",
    kind = "APIExportEndpointSlice",
    plural = "apiexportendpointslices",
    singular = "apiexportendpointslice",
    status = "APIExportEndpointSliceStatus",
    derive = "PartialEq",
    schema = "disabled",
    doc = "The addresses at which an APIExport serves its consumers, one for each shard that has consumers."
)]
#[serde(rename_all = "camelCase")]
pub struct APIExportEndpointSliceSpec {
    /// The export. Can't be changed.
    pub export: ExportReference,
    /// The name of the Partition whose shards the slice is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// The status of an APIExportEndpointSlice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIExportEndpointSliceStatus {
    /// The addresses. Empty while no workspace binds the export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<APIExportEndpoint>,
    /// `APIExportValid`, `PartitionValid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The selector of the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_selector: Option<String>,
}

/// An address at which an APIExport serves the consumers of a shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct APIExportEndpoint {
    /// The URL of the virtual workspace, without `/clusters/…`.
    pub url: String,
    /// The shards that the address serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<EndpointShards>,
}

/// The shards that an address serves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointShards {
    /// All shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_all: Option<bool>,
    /// The shards with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The spec of an APIResourceSchema, which can't be changed.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha1",
    kind = "APIResourceSchema",
    plural = "apiresourceschemas",
    singular = "apiresourceschema",
    derive = "PartialEq",
    schema = "disabled",
    doc = "The schema of a kind. Its name is `<prefix>.<plural>.<group>`, with `core` for the core group."
)]
#[serde(rename_all = "camelCase")]
pub struct APIResourceSchemaSpec {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The names of the kind.
    pub names: Names,
    /// `Cluster` or `Namespaced`.
    pub scope: String,
    /// The versions.
    pub versions: Vec<APIResourceVersion>,
    /// `DNS1123Subdomain` or `PathSegmentName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_validation: Option<String>,
    /// How objects are converted. Required if there are several versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Conversion>,
}
