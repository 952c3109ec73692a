//! The parts of an APIResourceSchema.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    /// The kind, such as `ConfigMap`.
    pub kind: String,
    /// The kind of lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_kind: Option<String>,
    /// The name in paths, such as `configmaps`.
    pub plural: String,
    /// The singular for command lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub singular: Option<String>,
    /// Short names for command lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// The categories, such as `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

/// A version of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct APIResourceVersion {
    /// The name, such as `v1`.
    pub name: String,
    /// Whether the version is served.
    pub served: bool,
    /// Whether objects are stored in this version. True for one version.
    pub storage: bool,
    /// Whether the version is deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// The warning for users of a deprecated version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecation_warning: Option<String>,
    /// The JSON schema itself: kcp refuses a level `openAPIV3Schema`, which the schema of a CRD has.
    pub schema: Value,
    /// The subresources. An empty object if there are none.
    #[serde(default)]
    pub subresources: Subresources,
    /// Additional columns of tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_printer_columns: Vec<ColumnDefinition>,
    /// The fields that field selectors may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selectable_fields: Vec<SelectableField>,
}

/// The subresources of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subresources {
    /// Whether there is a status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<super::Empty>,
    /// Whether, and how, the kind can be scaled. APIExport endpoints do not serve this subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleSubresource>,
}

/// The fields of a kind that its scale shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSubresource {
    /// The path of the wanted number of replicas, such as `.spec.replicas`.
    pub spec_replicas_path: String,
    /// The path of the number of replicas.
    pub status_replicas_path: String,
    /// The path of the label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector_path: Option<String>,
}

/// A column of tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ColumnDefinition {
    /// The header.
    pub name: String,
    /// The OpenAPI type.
    #[serde(rename = "type")]
    pub type_: String,
    /// The OpenAPI format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// 0 for columns that are always shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The path of the value.
    pub json_path: String,
}

/// A field that field selectors may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectableField {
    /// The path, such as `.spec.color`.
    pub json_path: String,
}

/// How objects are converted between versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conversion {
    /// `None` or `Webhook`.
    pub strategy: String,
    /// The webhook, as in a CRD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
}
