//! The desired state of a target or a copy, and the write that brings the object to that state: a merge patch of the
//! fields that the sync owns, or a server-side apply.

use std::collections::BTreeMap;

use kube::core::{DynamicObject, ObjectMeta, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    fields::{Fields, changes, contains, digest, dropped, without_nulls},
    link::{self, Link, WRITTEN},
};

/// The most bytes of the annotation that stores the owned fields. Kubernetes allows 256 KiB for all annotations of an
/// object together.
pub const MAX_FIELDS_BYTES: usize = 128 * 1024;

/// What a sync with server-side apply does if another field manager has set a field to another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflicts {
    /// The sync sets the field to its own value. Kubernetes recommends this for controllers.
    Revert,
    /// The sync writes nothing, and reports the field and its manager in the error and the condition.
    Report,
}

/// The desired state has more fields than the annotation can store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the paths of the target's fields take {bytes} bytes, and an annotation has room for {MAX_FIELDS_BYTES}; project fewer or \
     shorter keys"
)]
pub struct TooManyFields {
    /// The bytes that the paths take.
    pub bytes: usize,
}

/// How objects are written: with server-side apply, or with merge patches if `None`.
pub(crate) type Mode = Option<Conflicts>;

/// A write to an object that exists. The write names the version that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    Merge(Value),
    Apply { object: Value, force: bool },
}

/// What was written last. Stored in an annotation of the object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LastWrite {
    /// The hash of the desired state.
    desired: String,
    /// The hash of the owned fields as the server stored them, if they differ from what was sent. Those values then
    /// count as desired. Otherwise a server that stores `1000m` as `1` would be sent `1000m` for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<String>,
    /// The paths of the owned fields. `None` with server-side apply, where the server keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Fields>,
}

/// The desired state of one object.
#[derive(Debug, PartialEq)]
pub(crate) struct Desired {
    /// The synced part of the object, with the link among its labels and annotations.
    pub(crate) object: Value,
    pub(crate) digest: String,
    /// The content of the annotation if the server stores exactly what was sent.
    written: String,
    mode: Mode,
}

/// The name of a sync's field manager. Merge patches use it too, so that a sync can change to server-side apply.
pub(crate) fn manager(sync: &str) -> String {
    format!("{}{sync}", link::PREFIX)
}

impl Desired {
    /// Reduces a projected object to the part that is synced: everything but its status and metadata, plus its labels
    /// and annotations. Adds the link, and the `marks`: a label and an annotation.
    pub(crate) fn new(
        projected: Value,
        link: &Link<'_>,
        marks: [Option<(&str, String)>; 2],
        mode: Mode,
    ) -> Result<Self, TooManyFields> {
        let mut object = match without_nulls(projected) {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        for other in ["apiVersion", "kind", "status"] {
            object.remove(other);
        }
        let metadata = object.remove("metadata").unwrap_or_default();
        let with = |key: &str, own: BTreeMap<String, String>, mark: Option<(&str, String)>| -> Value {
            let projected = metadata[key].as_object().into_iter().flatten();
            let copied = projected.filter(|(key, _)| link::is_copied(key));
            let mut all: Map<String, Value> = copied.map(|(k, v)| (k.clone(), v.clone())).collect();
            all.extend(own.into_iter().map(|(k, v)| (k, v.into())));
            all.extend(mark.map(|(k, v)| (k.to_owned(), v.into())));
            Value::Object(all)
        };
        let ((labels, annotations), [label, annotation]) = (link.write(), marks);
        let labels = with("labels", labels, label);
        let annotations = with("annotations", annotations, annotation);
        object.insert(
            "metadata".to_owned(),
            json!({"labels": labels, "annotations": annotations}),
        );
        let object = Value::Object(object);
        let (digest, fields) = (digest(&object), mode.is_none().then(|| Fields::of(&object)));
        let desired = digest.clone();
        let written = encode(&LastWrite {
            desired,
            stored: None,
            fields,
        })?;
        Ok(Self {
            object,
            digest,
            written,
            mode,
        })
    }

    /// Whether the annotation of an object shows that it is stored as it was sent. This cheap check suffices in most
    /// cases.
    pub(crate) fn is_stored(&self, live: &DynamicObject) -> bool {
        let of = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned()
        };
        let ObjectMeta {
            labels, annotations, ..
        } = &live.metadata;
        if of(annotations, WRITTEN).as_ref() != Some(&self.written) {
            return false;
        }
        let is_there = |map: &Option<BTreeMap<String, String>>, key: &str| {
            let mut all = self.object["metadata"][key].as_object().into_iter().flatten();
            all.all(|(key, value)| of(map, key).as_deref() == value.as_str())
        };
        let mut fields = self
            .object
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "metadata");
        is_there(labels, "labels")
            && is_there(annotations, "annotations")
            && fields.all(|(key, desired)| {
                live.data
                    .get(key)
                    .is_some_and(|live| contains(live, desired, self.mode.is_some()))
            })
    }

    /// The first 64 bits of the digest.
    pub(crate) fn short(&self) -> u64 {
        u64::from_str_radix(&self.digest[..16], 16).unwrap_or_default()
    }

    /// The object to create. It is sent with POST in both modes, because a server-side apply could change an object
    /// that exists.
    pub(crate) fn to_create(&self) -> Value {
        self.with_note(self.written.clone())
    }

    fn with_note(&self, written: String) -> Value {
        let mut object = self.object.clone();
        object["metadata"]["annotations"][WRITTEN] = written.into();
        object
    }

    /// The next write to an object of the sync. `None` if the object is up to date.
    pub(crate) fn to_write(&self, sync: &str, live: &Value) -> Result<Option<Write>, TooManyFields> {
        let written = written(live);
        let is_last = written
            .as_ref()
            .is_some_and(|written| written.desired == self.digest);
        let noted = written
            .as_ref()
            .and_then(|written| written.stored.as_ref())
            .filter(|_| is_last);
        let is_stored = noted.is_some_and(|noted| *noted == self.stored(live));
        if self.mode.is_some() {
            if is_stored || is_last && contains(live, &self.object, true) {
                return Ok(None);
            }
            let handed_over = handed_over(&live["metadata"]["managedFields"], &manager(sync));
            let Some(managed) = handed_over else {
                return Ok(Some(self.apply(live, self.written.clone())));
            };
            let mut patch = json!({"metadata": {"managedFields": managed}});
            add_preconditions(&mut patch, live);
            return Ok(Some(Write::Merge(patch)));
        }
        let owned = written.as_ref().and_then(|written| written.fields.as_ref());
        let changes = changes(owned, &self.object, live).filter(|_| !is_stored);
        if changes.is_none() && is_last {
            return Ok(None);
        }
        // The note about stored values stays until the desired state changes.
        let note = written
            .filter(|_| is_last)
            .map_or_else(|| Ok(self.written.clone()), |last| encode(&last))?;
        Ok(Some(merge(changes, note, live)))
    }

    /// As [`to_write`](Self::to_write). If nothing differs but fields that the server did not store before, sends
    /// those again.
    pub(crate) fn next_write(&self, sync: &str, live: &Value) -> Result<Option<Write>, TooManyFields> {
        let write = self.to_write(sync, live)?;
        if write.is_some() || dropped(&self.object, live).is_empty() {
            return Ok(write);
        }
        let note = written(live).map_or_else(|| Ok(self.written.clone()), |last| encode(&last))?;
        Ok(Some(if self.mode.is_some() {
            self.apply(live, note)
        } else {
            merge(
                changes(Some(&Fields::of(&self.object)), &self.object, live),
                note,
                live,
            )
        }))
    }

    /// The write that notes which values the server stored instead of those that were sent. `None` if it stored what
    /// was sent.
    pub(crate) fn to_note(&self, stored: &Value) -> Result<Option<Write>, TooManyFields> {
        let last = written(stored).filter(|last| last.desired == self.digest);
        // With server-side apply, an answer without a note of this desired state is not the answer to an apply.
        let is_noted = match &last {
            Some(last) if last.stored.as_ref() == Some(&self.stored(stored)) => true,
            Some(_) if self.mode.is_some() => contains(stored, &self.object, true),
            None if self.mode.is_some() => true,
            last => changes(
                last.as_ref().and_then(|last| last.fields.as_ref()),
                &self.object,
                stored,
            )
            .is_none(),
        };
        if is_noted {
            return Ok(None);
        }
        let (desired, fields) = (
            self.digest.clone(),
            self.mode.is_none().then(|| Fields::of(&self.object)),
        );
        let note = encode(&LastWrite {
            desired,
            stored: Some(self.stored(stored)),
            fields,
        })?;
        Ok(Some(if self.mode.is_some() {
            self.apply(stored, note)
        } else {
            merge(None, note, stored)
        }))
    }

    /// The first server-side apply to an object that was written with merge patches.
    pub(crate) fn first_apply(&self, live: &Value) -> Write {
        self.apply(live, self.written.clone())
    }

    fn apply(&self, live: &Value, note: String) -> Write {
        let mut object = self.with_note(note);
        add_preconditions(&mut object, live);
        Write::Apply {
            object,
            force: self.mode == Some(Conflicts::Revert),
        }
    }

    /// A hash of the owned fields as the server has stored them.
    fn stored(&self, live: &Value) -> String {
        digest(&Fields::of(&self.object).select(live))
    }
}

/// The note in the annotation. `None` also if the annotation is damaged: then no field counts as owned, nothing is
/// removed, and the next write repairs it.
fn written(live: &Value) -> Option<LastWrite> {
    serde_json::from_str(live["metadata"]["annotations"][WRITTEN].as_str()?).ok()
}

fn encode(written: &LastWrite) -> Result<String, TooManyFields> {
    let text = serde_json::to_string(written).unwrap_or_default();
    let bytes = text.len();
    if bytes > MAX_FIELDS_BYTES {
        Err(TooManyFields { bytes })
    } else {
        Ok(text)
    }
}

fn merge(changes: Option<Value>, note: String, live: &Value) -> Write {
    let mut patch = changes.unwrap_or_else(|| json!({}));
    add_preconditions(&mut patch, live);
    patch["metadata"]["annotations"][WRITTEN] = note.into();
    Write::Merge(patch)
}

/// Limits a write to this object in the state that was read.
fn add_preconditions(write: &mut Value, live: &Value) {
    for precondition in ["uid", "resourceVersion"] {
        write["metadata"][precondition] = live["metadata"][precondition].clone();
    }
}

/// The `managedFields` to write so that everything that this manager has created and patched counts as applied. Without
/// this write, a field that is no longer applied would stay, because the manager still owns the field through its
/// creation. `None` if everything counts as applied already.
fn handed_over(managed: &Value, manager: &str) -> Option<Value> {
    let is_own = |entry: &Value| entry["manager"] == manager && entry["subresource"].is_null();
    let (own, mut rest): (Vec<Value>, Vec<Value>) = managed.as_array()?.iter().cloned().partition(is_own);
    if !own.iter().any(|entry| entry["operation"] == "Update") {
        return None;
    }
    let mut entries = own.into_iter();
    let mut applied = entries.next()?;
    for entry in entries {
        merge_owned(&mut applied["fieldsV1"], &entry["fieldsV1"]);
    }
    applied["operation"] = "Apply".into();
    rest.push(applied);
    Some(rest.into())
}

fn merge_owned(fields: &mut Value, others: &Value) {
    for (key, other) in others.as_object().into_iter().flatten() {
        merge_owned(&mut fields[key], other);
    }
    if fields.is_null() {
        *fields = Value::Object(Map::new());
    }
}

/// The conflicts of a server-side apply as text: each field with its manager.
pub(crate) fn conflicts(status: &Status) -> Option<String> {
    let causes = status.details.as_ref()?.causes.iter();
    let conflicts: Vec<String> = causes
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| format!("{} ({})", cause.field, cause.message))
        .collect();
    (!conflicts.is_empty()).then(|| conflicts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::SourceName;

    const LINK: Link<'static> = Link {
        sync: "dbs",
        owner: None,
        source: SourceName {
            cluster: "team-a",
            namespace: None,
            name: "db",
        },
    };

    fn of(spec: Value, mode: Mode) -> Desired {
        let projected = json!({
            "apiVersion": "v1", "kind": "X", "status": {"phase": "x"}, "spec": spec,
            "metadata": {"name": "db", "uid": "u", "labels": {"team": "a", "kcp.io/x": "1"}},
        });
        Desired::new(projected, &LINK, [None, None], mode).unwrap()
    }

    fn is_stored(desired: &Desired, live: &Value) -> bool {
        let mut live = live.clone();
        live["metadata"]["name"] = "x".into();
        desired.is_stored(&serde_json::from_value(live).unwrap())
    }

    #[test]
    fn a_created_target_is_as_it_should_be_and_what_is_damaged_is_mended() {
        for mode in [None, Some(Conflicts::Revert)] {
            let desired = of(json!({"size": 1}), mode);
            let made = desired.to_create();
            assert_eq!(
                (desired.to_write("dbs", &made), is_stored(&desired, &made)),
                (Ok(None), true)
            );
            for (at, value) in [
                ("/metadata/labels", json!({})),
                ("/metadata/annotations/sync.mcr.dev~1written", json!("{")),
                ("/spec/size", json!(2)),
            ] {
                let mut live = made.clone();
                *live.pointer_mut(at).unwrap() = value;
                assert!(!is_stored(&desired, &live), "{at}");
                let write = desired.to_write("dbs", &live).unwrap().unwrap();
                let (Write::Merge(patch) | Write::Apply { object: patch, .. }) = write;
                let changed = patch
                    .pointer(at)
                    .or(patch["metadata"]["labels"].get("sync.mcr.dev/sync"));
                assert!(changed.is_some_and(|value| !value.is_null()), "{at} {patch}");
            }
        }
    }

    #[test]
    fn what_the_server_stores_otherwise_is_noted_once_and_drift_is_repaired() {
        for mode in [None, Some(Conflicts::Report)] {
            let desired = of(json!({"cpu": "1000m", "size": 1}), mode);
            let mut stored = desired.to_create();
            assert_eq!(desired.to_note(&stored), Ok(None));
            stored["spec"] = json!({"cpu": "1", "size": 1, "defaulted": true});
            let (Write::Merge(note) | Write::Apply { object: note, .. }) =
                desired.to_note(&stored).unwrap().unwrap();
            stored["metadata"]["annotations"][WRITTEN] = note["metadata"]["annotations"][WRITTEN].clone();
            assert_eq!(
                (desired.to_write("dbs", &stored), desired.to_note(&stored)),
                (Ok(None), Ok(None))
            );
            stored["spec"]["more"] = 1.into();
            assert_eq!(
                desired.to_write("dbs", &stored),
                Ok(None),
                "the fields of others don't count"
            );
            assert!(
                of(json!({"cpu": "2000m", "size": 1}), mode)
                    .to_write("dbs", &stored)
                    .unwrap()
                    .is_some()
            );
            stored["spec"]["size"] = 3.into();
            assert!(desired.to_write("dbs", &stored).unwrap().is_some());
        }
    }

    #[test]
    fn a_list_with_elements_of_others_is_applied_once_more() {
        let desired = of(json!({"ports": [{"port": 1}]}), Some(Conflicts::Report));
        let mut live = desired.to_create();
        live["spec"]["ports"] = json!([{"port": 1, "protocol": "TCP"}]);
        assert_eq!(
            (desired.to_write("dbs", &live), is_stored(&desired, &live)),
            (Ok(None), true)
        );
        live["spec"]["ports"] = json!([{"port": 1, "protocol": "TCP"}, {"port": 2}]);
        assert!(
            desired.to_write("dbs", &live).unwrap().is_some(),
            "nobody knows whether the list is merged"
        );
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
        assert!(
            [wanted, Value::Null]
                .iter()
                .all(|done| handed_over(done, "me").is_none())
        );
    }

    #[test]
    fn paths_that_an_annotation_can_not_hold_are_an_error() {
        let many = (0..2000).map(|i| (format!("{i:0>100}"), 1.into())).collect();
        let error = Desired::new(Value::Object(many), &LINK, [None, None], None).unwrap_err();
        assert!(error.bytes > 200_000, "{error}");
    }
}
