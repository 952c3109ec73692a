use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// A condition in the status of kcp's kinds.
///
/// Kubernetes' own `Condition` does not fit: here a reason and a message are optional, and there is no generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The name of the condition, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// `Error`, `Warning` or `Info`. Only if the condition is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, as text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The condition of a type. `None` if kcp has not set it.
pub(crate) fn find<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a condition is set and true.
pub(crate) fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_needs_no_reason_and_is_true_only_if_it_reports_so() {
        let conditions: Vec<Condition> = serde_json::from_str(
            r#"[{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
                {"type": "APIExportValid", "status": "False", "severity": "Error", "reason": "NotFound"},
                {"type": "BindingUpToDate", "status": "Unknown"}]"#,
        )
        .unwrap();
        assert!(is_true(&conditions, "Ready"));
        for other in ["APIExportValid", "BindingUpToDate", "PermissionClaimsApplied"] {
            assert!(!is_true(&conditions, other), "{other}");
        }
        let invalid = find(&conditions, "APIExportValid").unwrap();
        assert_eq!(
            (invalid.reason.as_deref(), &invalid.message),
            (Some("NotFound"), &None)
        );
    }
}
