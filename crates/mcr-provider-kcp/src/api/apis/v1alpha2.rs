//! Version `v1alpha2`, in which kcp stores APIExports and APIBindings.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{APIExportStatus, BindingReference, BoundAPIResource, Empty, Identity, MaximalPermissionPolicy};
use crate::api::condition::Condition;

/// The spec of an APIExport.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha2",
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
    /// The kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceSchema>,
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

/// A kind of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSchema {
    /// The plural of the kind.
    pub name: String,
    /// The API group. Empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The name of the APIResourceSchema.
    pub schema: String,
    /// Where objects are stored. `None`: in the consumer's workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Where the objects of a kind are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// In the consumer's workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crd: Option<Empty>,
    /// In a virtual workspace.
    #[serde(default, rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub virtual_: Option<VirtualStorage>,
}

/// A virtual workspace that serves the objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualStorage {
    /// The endpoint slice of the virtual workspace.
    pub reference: VirtualStorageReference,
    /// The identity of the kind.
    pub identity_hash: String,
}

/// An object that has the address of a virtual workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualStorageReference {
    /// The API group of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// The kind of the object.
    pub kind: String,
    /// The name of the object.
    pub name: String,
}

/// A kind of the consumers that a provider asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionClaim {
    /// The API group. Empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    /// The verbs, such as `get`, or `*`. At least one.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// The identity of the export that the kind belongs to. `None` or empty for built-in kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_hash: Option<String>,
    /// The selector of bindings whose claims kcp accepts by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_selector: Option<PermissionClaimSelector>,
}

/// The objects that a claim covers: all, or those with some labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionClaimSelector {
    /// All objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_all: Option<bool>,
    /// Objects with these labels. kcp adds them to objects that are created through the endpoint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Objects whose labels match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// The spec of an APIBinding.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "apis.kcp.io",
    version = "v1alpha2",
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
    /// The API. Can't be changed.
    pub reference: BindingReference,
    /// The claims of the export that are accepted or rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<AcceptablePermissionClaim>,
}

/// A claim with the decision of the consumer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptablePermissionClaim {
    /// The claim, and the objects that it covers.
    #[serde(flatten)]
    pub claim: ScopedPermissionClaim,
    /// `Accepted` or `Rejected`.
    pub state: String,
}

/// A claim, and the objects that it covers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScopedPermissionClaim {
    /// The claim.
    #[serde(flatten)]
    pub claim: PermissionClaim,
    /// The objects. Can't be changed.
    #[serde(default)]
    pub selector: PermissionClaimSelector,
}

/// The status of an APIBinding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    pub applied_permission_claims: Vec<ScopedPermissionClaim>,
    /// The claims of the export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_permission_claims: Vec<PermissionClaim>,
}
