//! Conditions as v1beta1 has them. v1beta2 keeps them as deprecated.

use serde::{Deserialize, Serialize};

/// A condition of v1beta1.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Condition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// How bad it is that the condition is false: `Error`, `Warning` or `Info`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// Why, as one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when, in RFC 3339.
    pub last_transition_time: String,
}
