//! The desired state of a target: the projected object, the link, and the record of its fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    link::{self, Link, Ownership},
    owned::{Record, TooManyFields, merge, without_nulls},
};

/// The part of a projected object that is synced: not its status, and of its metadata the labels and annotations. The link
/// is added.
pub(crate) fn compose(projected: Value, link: &Link<'_>) -> Value {
    let mut desired = match without_nulls(projected) {
        Value::Object(desired) => desired,
        _ => Map::new(),
    };
    for other in ["apiVersion", "kind", "status"] {
        desired.remove(other);
    }
    let metadata = desired.remove("metadata").unwrap_or_default();
    let (labels, annotations) = link.write();
    let with = |key: &str, own: BTreeMap<String, String>| -> Value {
        let projected = metadata[key].as_object().into_iter().flatten();
        let copied = projected.filter(|(key, _)| link::is_copied(key));
        let mut all: Map<String, Value> = copied.map(|(k, v)| (k.clone(), v.clone())).collect();
        all.extend(own.into_iter().map(|(k, v)| (k, v.into())));
        Value::Object(all)
    };
    desired.insert(
        "metadata".to_owned(),
        json!({"labels": with("labels", labels), "annotations": with("annotations", annotations)}),
    );
    Value::Object(desired)
}

fn map(live: &Value, key: &str) -> BTreeMap<String, String> {
    let entries = live["metadata"][key].as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Whether a target belongs to the source of this link.
pub(crate) fn ownership(live: &Value, link: &Link<'_>) -> Ownership {
    link.owns(&map(live, "labels"), &map(live, "annotations"))
}

/// Whether a target belongs to a source, whichever it is.
pub(crate) fn is_linked(live: &Value) -> bool {
    link::is_linked(&map(live, "labels"), &map(live, "annotations"))
}

fn record_of(live: &Value) -> Option<Record> {
    Record::decode(live["metadata"]["annotations"][link::FIELDS].as_str()?)
}

/// The object to create.
pub(crate) fn to_create(desired: &Value) -> Result<Value, TooManyFields> {
    let mut object = desired.clone();
    object["metadata"]["annotations"][link::FIELDS] = Record::of(desired).encode()?.into();
    Ok(object)
}

/// The merge patch for a target, or `None` if it is as it should be.
pub(crate) fn to_patch(desired: &Value, live: &Value) -> Result<Option<Value>, TooManyFields> {
    let previous = record_of(live);
    let changes = merge(previous.as_ref(), desired, live);
    if changes.is_none() && previous.as_ref().is_some_and(|record| record.is_of(desired)) {
        return Ok(None);
    }
    // The record of settled values stays until the desired state is another one.
    let record = previous
        .filter(|record| record.is_of(desired))
        .unwrap_or_else(|| Record::of(desired));
    patch(changes, &record, live).map(Some)
}

/// The merge patch that sends once more what the server did not store before.
pub(crate) fn to_resend(desired: &Value, live: &Value) -> Result<Value, TooManyFields> {
    let sent = Record::of(desired);
    let changes = merge(Some(&sent), desired, live);
    patch(changes, &record_of(live).unwrap_or(sent), live)
}

/// The merge patch that notes what the server stored in place of what it was sent. `None` if it stored what it was sent.
pub(crate) fn to_settle(desired: &Value, stored: &Value) -> Result<Option<Value>, TooManyFields> {
    if merge(record_of(stored).as_ref(), desired, stored).is_none() {
        return Ok(None);
    }
    patch(None, &Record::of(desired).settled_as(stored), stored).map(Some)
}

fn patch(changes: Option<Value>, record: &Record, live: &Value) -> Result<Value, TooManyFields> {
    let mut patch = changes.unwrap_or_else(|| json!({}));
    // Only this object, in the state that was read.
    for precondition in ["uid", "resourceVersion"] {
        patch["metadata"][precondition] = live["metadata"][precondition].clone();
    }
    patch["metadata"]["annotations"][link::FIELDS] = record.encode()?.into();
    Ok(patch)
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

    fn projected() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X", "status": {"phase": "x"}, "spec": {"size": 1},
            "metadata": {"name": "db", "uid": "u", "finalizers": ["f"], "labels": {"team": "a", "kcp.io/x": "1"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        })
    }

    #[test]
    fn only_the_state_and_the_marks_of_the_user_are_copied() {
        let desired = compose(projected(), &LINK);
        let fields: Vec<_> = desired.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["metadata", "spec"]);
        let labels = &desired["metadata"]["labels"];
        assert_eq!(
            (&labels["team"], &labels["kcp.io/x"]),
            (&json!("a"), &Value::Null)
        );
        assert_eq!(desired["metadata"]["annotations"].as_object().unwrap().len(), 2);
        assert_eq!(desired["metadata"].as_object().unwrap().len(), 2);
        assert_eq!(ownership(&desired, &LINK), Ownership::Ours);
    }

    #[test]
    fn a_created_target_is_as_it_should_be_and_a_damaged_link_is_mended() {
        let desired = compose(projected(), &LINK);
        let mut live = to_create(&desired).unwrap();
        assert_eq!(to_patch(&desired, &live), Ok(None));
        live["metadata"]["labels"] = json!({});
        let patch = to_patch(&desired, &live).unwrap().unwrap();
        assert_eq!(patch["metadata"]["labels"]["sync.mcr.dev/sync"], "dbs");
        live = to_create(&desired).unwrap();
        live["metadata"]["annotations"][link::FIELDS] = "{".into();
        assert!(
            to_patch(&desired, &live).unwrap().is_some(),
            "the record is mended"
        );
    }

    #[test]
    fn the_record_follows_the_desired_state() {
        let before = compose(projected(), &LINK);
        let live = to_create(&before).unwrap();
        let mut after = projected();
        after["spec"] = json!({"other": 1});
        let patch = to_patch(&compose(after, &LINK), &live).unwrap().unwrap();
        assert_eq!(patch["spec"], json!({"other": 1, "size": null}));
    }

    #[test]
    fn what_the_server_stores_otherwise_is_noted_once() {
        let desired = compose(projected(), &LINK);
        let mut stored = to_create(&desired).unwrap();
        assert_eq!(to_settle(&desired, &stored), Ok(None));
        stored["spec"]["size"] = "1".into();
        let note = to_settle(&desired, &stored).unwrap().unwrap();
        assert_eq!(note["spec"], Value::Null);
        stored["metadata"]["annotations"][link::FIELDS] =
            note["metadata"]["annotations"][link::FIELDS].clone();
        assert_eq!(to_patch(&desired, &stored), Ok(None));
        assert_eq!(to_settle(&desired, &stored), Ok(None));
    }
}
