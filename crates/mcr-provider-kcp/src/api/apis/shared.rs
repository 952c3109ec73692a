//! The parts that both versions have.

use serde::{Deserialize, Serialize};

use crate::api::condition::Condition;

/// An object without fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// The export that a binding binds, or that an endpoint slice serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportReference {
    /// The workspace of the export: its path, such as `root:org`, or its id. `None`: the workspace of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the APIExport.
    pub name: String,
}

/// The API that a binding binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingReference {
    /// The export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<ExportReference>,
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

/// The secret behind the identity of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The Secret that holds it in the key `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// The name of a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretReference {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The most that users of a binding may do, whatever the RBAC of their workspace says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaximalPermissionPolicy {
    /// The RBAC of the export's workspace, for users and groups with the prefix `apis.kcp.io:binding:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Empty>,
}

/// The status of an APIExport, in both versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIExportStatus {
    /// The hash of the identity. Claims of other exports name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_hash: Option<String>,
    /// `IdentityValid` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Deprecated by kcp, and usually empty: see
    /// [`APIExportEndpointSlice`](super::v1alpha1::APIExportEndpointSlice).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_workspaces: Vec<VirtualWorkspace>,
}

/// The address of a virtual workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualWorkspace {
    /// The URL.
    pub url: String,
}
