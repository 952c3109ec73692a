//! How a target is written: with a merge patch, or with server-side apply.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    desired, link,
    owned::{Fields, TooManyFields, digest, dropped},
};

/// What a sync with server-side apply does about a field that somebody else has set to another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflicts {
    /// The sync takes the field, and reverts the value. Kubernetes recommends this for controllers.
    Revert,
    /// The sync writes nothing, and tells the field and its manager in the error and the condition.
    Tell,
}

/// A write to a target that exists. It names the version that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    Merge(Value),
    Apply { object: Value, force: bool },
}

/// Writes with merge patches if `None`.
pub(crate) type Mode = Option<Conflicts>;

/// The state of the last apply, as an annotation of the target stores it. The server keeps the owned fields.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Note {
    /// The hash of the desired state.
    desired: String,
    /// The hash of its fields as the server stored them, if it stored others than were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled: Option<String>,
}

/// The field manager of a sync. Merge patches have it too, so that a sync may change to server-side apply.
pub(crate) fn manager(sync: &str) -> String {
    format!("{}{sync}", link::PREFIX)
}

/// The object to create. The server has no apply that creates and never changes, so a POST does it in both modes.
pub(crate) fn to_create(mode: Mode, desired: &Value) -> Result<Value, TooManyFields> {
    match mode {
        None => desired::to_create(desired),
        Some(_) => Ok(with_note(desired, None)),
    }
}

/// The next write to a target, or `None` if it is as it should be.
pub(crate) fn to_write(
    mode: Mode,
    sync: &str,
    desired: &Value,
    live: &Value,
) -> Result<Option<Write>, TooManyFields> {
    let Some(conflicts) = mode else {
        return Ok(desired::to_patch(desired, live)?.map(Write::Merge));
    };
    if is_applied(desired, live) {
        return Ok(None);
    }
    if let Some(managed) = handed_over(&live["metadata"]["managedFields"], &manager(sync)) {
        let mut patch = json!({"metadata": {"managedFields": managed}});
        only_this(&mut patch, live);
        return Ok(Some(Write::Merge(patch)));
    }
    Ok(Some(apply(desired, live, conflicts, None)))
}

/// As [`to_write`], or the write that sends once more what the server did not store before.
pub(crate) fn next_write(
    mode: Mode,
    sync: &str,
    desired: &Value,
    live: &Value,
) -> Result<Option<Write>, TooManyFields> {
    let write = to_write(mode, sync, desired, live)?;
    if write.is_some() || dropped(desired, live).is_empty() {
        return Ok(write);
    }
    let Some(conflicts) = mode else {
        return desired::to_resend(desired, live).map(|patch| Some(Write::Merge(patch)));
    };
    let settled = note(live).and_then(|note| note.settled);
    Ok(Some(apply(desired, live, conflicts, settled)))
}

/// The write that notes what the server stored in place of what it was sent. `None` if it stored what it was sent.
pub(crate) fn to_settle(mode: Mode, desired: &Value, stored: &Value) -> Result<Option<Write>, TooManyFields> {
    let Some(conflicts) = mode else {
        return Ok(desired::to_settle(desired, stored)?.map(Write::Merge));
    };
    // An answer without this note is not that of an apply.
    let noted = note(stored).is_some_and(|note| note.desired == digest(desired));
    let settled = || digest(&Fields::of(desired).select(stored));
    Ok((noted && !is_applied(desired, stored)).then(|| apply(desired, stored, conflicts, Some(settled()))))
}

fn note(live: &Value) -> Option<Note> {
    serde_json::from_str(live["metadata"]["annotations"][link::APPLIED].as_str()?).ok()
}

fn with_note(desired: &Value, settled: Option<String>) -> Value {
    let mut object = desired.clone();
    let note = Note {
        desired: digest(desired),
        settled,
    };
    let text = serde_json::to_string(&note).unwrap_or_default();
    object["metadata"]["annotations"][link::APPLIED] = text.into();
    object
}

pub(crate) fn apply(desired: &Value, live: &Value, conflicts: Conflicts, settled: Option<String>) -> Write {
    let mut object = with_note(desired, settled);
    only_this(&mut object, live);
    Write::Apply {
        object,
        force: conflicts == Conflicts::Revert,
    }
}

/// Only this object, in the state that was read.
fn only_this(write: &mut Value, live: &Value) {
    for precondition in ["uid", "resourceVersion"] {
        write["metadata"][precondition] = live["metadata"][precondition].clone();
    }
}

fn is_applied(desired: &Value, live: &Value) -> bool {
    note(live).is_some_and(|note| {
        note.desired == digest(desired)
            && (contains(live, desired)
                || note.settled.as_ref() == Some(&digest(&Fields::of(desired).select(live))))
    })
}

/// Whether all of `desired` is in `live`. The elements of a list may have more fields, such as defaults, but there may be no others
/// among them: only the server knows whether it merges the list with those of others. If so, the next apply notes them.
fn contains(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired
            .iter()
            .all(|(key, desired)| live.get(key).is_some_and(|live| contains(live, desired))),
        (Value::Array(live), Value::Array(desired)) => {
            let mut pairs = live.iter().zip(desired);
            live.len() == desired.len() && pairs.all(|(live, desired)| contains(live, desired))
        }
        (live, desired) => live == desired,
    }
}

/// The `managedFields` in which all that this manager has created and patched counts as applied. `None` if nothing does so
/// far. Without it, a field that is no longer applied would stay, because the entry of the creation owns it too.
fn handed_over(managed: &Value, manager: &str) -> Option<Value> {
    let is_own = |entry: &Value| entry["manager"] == manager && entry["subresource"].is_null();
    let (own, mut rest): (Vec<Value>, Vec<Value>) = managed.as_array()?.iter().cloned().partition(is_own);
    if !own.iter().any(|entry| entry["operation"] == "Update") {
        return None;
    }
    let mut entries = own.into_iter();
    let mut applied = entries.next()?;
    for entry in entries {
        unite(&mut applied["fieldsV1"], &entry["fieldsV1"]);
    }
    applied["operation"] = "Apply".into();
    rest.push(applied);
    Some(rest.into())
}

fn unite(fields: &mut Value, others: &Value) {
    for (key, other) in others.as_object().into_iter().flatten() {
        unite(&mut fields[key], other);
    }
    if fields.is_null() {
        *fields = Value::Object(Map::new());
    }
}

/// The conflicts of an apply, as the server tells them: each with the manager and the field.
pub(crate) fn conflicts(status: &kube::core::Status) -> Option<String> {
    let causes = status.details.as_ref()?.causes.iter();
    let told: Vec<String> = causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| format!("{} ({})", cause.field, cause.message))
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_contained_is_applied_and_what_is_not_is_written() {
        let desired =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 1}], "size": "1000m"}});
        let mut live = with_note(&desired, None);
        live["spec"]["ports"] = json!([{"port": 1, "protocol": "TCP"}]);
        assert!(is_applied(&desired, &live));
        live["spec"]["ports"] = json!([{"port": 1, "protocol": "TCP"}, {"port": 2}]);
        assert!(
            !is_applied(&desired, &live),
            "nobody knows whether the list is merged"
        );
        live["spec"]["size"] = "1".into();
        assert!(!is_applied(&desired, &live));
        let Some(Write::Apply { object, .. }) = to_settle(Some(Conflicts::Tell), &desired, &live).unwrap()
        else {
            panic!("no write");
        };
        live["metadata"] = object["metadata"].clone();
        assert!(is_applied(&desired, &live));
        live["spec"]["size"] = "2".into();
        assert!(!is_applied(&desired, &live));
    }

    #[test]
    fn what_the_manager_created_counts_as_applied() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let other = entry("other", "Update", json!({"f:x": {}}));
        let managed = json!([
            other,
            entry("me", "Update", json!({"f:data": {"f:a": {}}})),
            entry("me", "Apply", json!({"f:data": {"f:b": {}}, "f:c": {}})),
        ]);
        let united = json!({"f:data": {"f:a": {}, "f:b": {}}, "f:c": {}});
        let wanted = json!([other, entry("me", "Apply", united)]);
        assert_eq!(handed_over(&managed, "me"), Some(wanted.clone()));
        assert_eq!(handed_over(&wanted, "me"), None);
        assert_eq!(handed_over(&Value::Null, "me"), None);
    }
}
