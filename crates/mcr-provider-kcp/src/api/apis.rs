//! The group `apis.kcp.io`: bindings of APIs.

/// Version `v1alpha2`, in which kcp stores APIBindings.
pub mod v1alpha2 {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
    use kube::CustomResource;
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    use crate::api::condition::Condition;

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

    /// The API that a binding binds.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct BindingReference {
        /// The export.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub export: Option<ExportReference>,
    }

    /// The export that a binding binds.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ExportReference {
        /// The workspace of the export: its path, such as `root:org`, or its id. `None`: the workspace of this object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
        /// The name of the APIExport.
        pub name: String,
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

    /// A kind that a binding has bound.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct BoundAPIResource {
        /// The API group. Empty for the core group.
        #[serde(default)]
        pub group: String,
        /// The plural of the kind.
        pub resource: String,
        /// The schema.
        pub schema: BoundSchema,
        /// The versions in which objects have been stored.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub storage_versions: Vec<String>,
    }

    /// The schema of a bound kind.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct BoundSchema {
        /// The name of the APIResourceSchema.
        pub name: String,
        /// The UID of the APIResourceSchema.
        #[serde(rename = "UID")]
        pub uid: String,
        /// The identity of the export that the kind belongs to.
        pub identity_hash: String,
    }
}
