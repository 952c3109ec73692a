//! The fields of a target that the sync owns, and the three-way merge that changes no other field.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::name::hex;

/// A set of field paths, as a tree. It has no values, so that values of Secrets are not stored a second time.
///
/// A leaf is a scalar, a list or an empty object. A list is owned as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Fields {
    /// The sync owns the value at this path. Serialised as `0`.
    Leaf(u8),
    /// The sync owns some fields of the object at this path.
    Object(BTreeMap<String, Fields>),
}

impl Fields {
    /// The paths of all leaves of a value.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Object(fields) if !fields.is_empty() => Self::Object(
                fields
                    .iter()
                    .map(|(key, value)| (key.clone(), Self::of(value)))
                    .collect(),
            ),
            _ => Self::Leaf(0),
        }
    }

    fn child(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Leaf(_) => None,
            Self::Object(fields) => fields.get(key),
        }
    }

    /// The part of `value` at these paths. Paths that `value` does not have are left out.
    pub(crate) fn select(&self, value: &Value) -> Value {
        match (self, value) {
            (Self::Object(fields), Value::Object(values)) => {
                let selected = fields.iter().filter_map(|(key, fields)| {
                    values.get(key).map(|value| (key.clone(), fields.select(value)))
                });
                Value::Object(selected.collect())
            }
            _ => value.clone(),
        }
    }
}

/// A hash of a value that does not depend on the order of keys.
pub(crate) fn digest(value: &Value) -> String {
    /// Hashes the text while it is written, without a buffer, because this runs at every observation.
    struct Hash(Sha256);

    impl io::Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn add(value: &Value, hash: &mut Hash) -> io::Result<()> {
        match value {
            Value::Object(fields) => {
                write!(hash, "{{{}", fields.len())?;
                for (key, value) in BTreeMap::from_iter(fields) {
                    serde_json::to_writer(&mut *hash, key)?;
                    add(value, hash)?;
                }
            }
            Value::Array(values) => {
                write!(hash, "[{}", values.len())?;
                values.iter().try_for_each(|value| add(value, hash))?;
            }
            scalar => serde_json::to_writer(&mut *hash, scalar)?,
        }
        hash.write_all(b",")
    }
    let mut hash = Hash(Sha256::new());
    // Writing to a hash can't fail.
    let _ = add(value, &mut hash);
    hex(&hash.0.finalize()[..16])
}

/// Removes nulls, which Kubernetes treats as absent, from a desired state.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        other => other,
    }
}

/// The merge patch that brings the owned fields of `live` to `desired`. `None` if there is nothing to change.
///
/// - A field of `desired` gets its value.
/// - A field that was owned and that `desired` does not have is removed.
/// - No other field is touched: those that defaulting, webhooks and other controllers set survive.
///
/// `desired` must have no nulls; see [`without_nulls`].
pub(crate) fn changes(owned: Option<&Fields>, desired: &Value, live: &Value) -> Option<Value> {
    match change(owned, Some(desired), Some(live)) {
        Change::Set(value) | Change::Patch(value) => Some(value),
        Change::Keep | Change::Remove => None,
    }
}

/// Whether all of `desired` is in `live`. With `extra_in_lists`, the elements of a list may have additional fields,
/// such as defaults. Additional elements are a difference: only the server knows whether it merges the list with
/// elements of other managers. If it merges them, the next apply notes the list as stored.
pub(crate) fn contains(live: &Value, desired: &Value, extra_in_lists: bool) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let mut all = desired.iter();
            all.all(|(key, desired)| {
                live.get(key)
                    .is_some_and(|live| contains(live, desired, extra_in_lists))
            })
        }
        (Value::Array(live), Value::Array(desired)) if extra_in_lists => {
            let mut pairs = live.iter().zip(desired);
            live.len() == desired.len()
                && pairs.all(|(live, desired)| contains(live, desired, extra_in_lists))
        }
        (live, desired) => live == desired,
    }
}

/// The paths at which `live` differs from `desired`, as people write them. With `absent_only`, only the paths that
/// `live` does not have at all, without empty values: a server may leave out what has no effect.
fn paths(desired: &Value, live: &Value, absent_only: bool) -> Vec<String> {
    let below = |name: String, desired: &Value, live: &Value| {
        let below = paths(desired, live, absent_only).into_iter();
        below.map(move |path| format!("{name}{path}")).collect::<Vec<_>>()
    };
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let path = |(key, desired): (&String, &Value)| match live.get(key) {
                Some(live) if live == desired => Vec::new(),
                Some(live) => below(format!(".{key}"), desired, live),
                None if absent_only && is_empty(desired) => Vec::new(),
                None => vec![format!(".{key}")],
            };
            desired.iter().flat_map(path).collect()
        }
        (Value::Array(desired), Value::Array(live)) if desired.len() == live.len() => {
            let pairs = desired.iter().zip(live).enumerate();
            pairs
                .flat_map(|(at, (desired, live))| below(format!("[{at}]"), desired, live))
                .collect()
        }
        (desired, live) if absent_only || desired == live => Vec::new(),
        _ => vec![String::new()],
    }
}

/// The fields of `desired` that `live` does not have, or has with another value.
pub(crate) fn differing(desired: &Value, live: &Value) -> Vec<String> {
    let paths = paths(desired, live, false).into_iter();
    paths
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect()
}

/// The fields that were sent to a server and that it has not stored.
pub(crate) fn dropped(desired: &Value, stored: &Value) -> Vec<String> {
    // `stringData` does not count as dropped: a server stores it as `data`.
    let paths = paths(desired, stored, true)
        .into_iter()
        .filter(|path| path != ".stringData");
    paths
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// What to do with one field.
enum Change {
    Keep,
    /// The whole value is replaced.
    Set(Value),
    /// Some fields of the object are changed.
    Patch(Value),
    Remove,
}

/// The change of one field. `previous` are the fields that the sync owned in it.
fn change(previous: Option<&Fields>, desired: Option<&Value>, live: Option<&Value>) -> Change {
    match (desired, live) {
        (Some(Value::Object(desired)), Some(Value::Object(live))) => {
            let patch = fields(previous, Some(desired), live);
            if patch.is_empty() {
                Change::Keep
            } else {
                Change::Patch(Value::Object(patch))
            }
        }
        (Some(desired), live) if live == Some(desired) => Change::Keep,
        (Some(desired), _) => Change::Set(desired.clone()),
        (None, None) => Change::Keep,
        (None, Some(live)) => match (previous, live) {
            (None, _) => Change::Keep,
            (Some(Fields::Object(_)), Value::Object(live)) => {
                let patch = fields(previous, None, live);
                // An object that would become empty is removed. Otherwise the target would differ from a new one.
                if live.keys().all(|key| patch.get(key).is_some_and(Value::is_null)) {
                    Change::Remove
                } else if patch.is_empty() {
                    Change::Keep
                } else {
                    Change::Patch(Value::Object(patch))
                }
            }
            // Somebody else has replaced the object by another value.
            (Some(Fields::Object(_)), _) => Change::Keep,
            // Somebody else has added fields to the empty object.
            (Some(Fields::Leaf(_)), Value::Object(live)) if !live.is_empty() => Change::Keep,
            (Some(Fields::Leaf(_)), _) => Change::Remove,
        },
    }
}

/// The patch of an object. A null removes a field.
fn fields(
    previous: Option<&Fields>,
    desired: Option<&Map<String, Value>>,
    live: &Map<String, Value>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    let owned = match previous {
        Some(Fields::Object(fields)) => Some(fields),
        _ => None,
    };
    let keys = desired
        .into_iter()
        .flat_map(Map::keys)
        .chain(owned.into_iter().flat_map(BTreeMap::keys));
    for key in keys {
        let previous = previous.and_then(|fields| fields.child(key));
        let wanted = desired.and_then(|desired| desired.get(key));
        match change(previous, wanted, live.get(key)) {
            Change::Keep => {}
            Change::Set(value) | Change::Patch(value) => drop(patch.insert(key.clone(), value)),
            Change::Remove => drop(patch.insert(key.clone(), Value::Null)),
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// RFC 7396.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let fields = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                fields.remove(key);
            } else {
                apply(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    /// `live` after a write of `desired`, and what is owned then.
    fn write(owned: Option<&Fields>, desired: &Value, live: &Value) -> (Value, Fields) {
        let mut live = live.clone();
        if let Some(patch) = changes(owned, desired, &live) {
            apply(&mut live, &patch);
        }
        (live, Fields::of(desired))
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            (0..3u8).prop_map(Value::from),
            Just(json!([1])),
            Just(json!([])),
            Just(json!({}))
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 1..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-c]", tree(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn after_a_write_the_desired_fields_are_there_and_nothing_is_left_to_do(old in object(), new in object(), live in object()) {
            let (live, owned) = write(None, &old, &live);
            let (live, owned) = write(Some(&owned), &new, &live);
            prop_assert_eq!(changes(Some(&owned), &new, &live), None);
            prop_assert!(contains(&live, &new, false), "the desired fields are there");
        }

        #[test]
        fn a_target_that_only_the_sync_wrote_is_as_one_made_anew(old in object(), new in object()) {
            let (live, owned) = write(None, &old, &json!({}));
            let (live, _) = write(Some(&owned), &new, &live);
            prop_assert_eq!(live, new);
        }

        #[test]
        fn the_fields_of_others_survive(old in object(), new in object(), other in tree()) {
            let foreign = json!({"z": other});
            let (live, owned) = write(None, &old, &foreign);
            let (live, _) = write(Some(&owned), &new, &live);
            prop_assert_eq!(&live["z"], &foreign["z"]);
        }

        #[test]
        fn paths_are_read_as_they_were_written(value in object()) {
            let fields = Fields::of(&value);
            prop_assert_eq!(serde_json::from_str::<Fields>(&serde_json::to_string(&fields).unwrap()).unwrap(), fields);
        }
    }

    #[test]
    fn fields_of_others_in_an_owned_object_survive() {
        let before = Fields::of(&json!({"spec": {"a": {"ours": 1}, "list": [1]}}));
        let live = json!({"spec": {"a": {"ours": 1, "theirs": 2}, "list": [1, 2], "defaulted": true}});
        let patch = changes(Some(&before), &json!({"spec": {"list": [1]}}), &live);
        assert_eq!(patch, Some(json!({"spec": {"a": {"ours": null}, "list": [1]}})));
    }

    #[test]
    fn what_a_server_stores_otherwise_elsewhere_or_not_as_empty_is_not_dropped() {
        let desired = json!({"stringData": {"a": "b"}, "spec": {"cpu": "1000m", "off": false, "none": {"a": []}, "list": [{"a": 1, "b": 2}], "c": 1}});
        let stored = json!({"data": {"a": "Yg=="}, "spec": {"cpu": "1", "list": [{"a": 1}], "more": true}});
        assert_eq!(dropped(&desired, &stored), ["spec.c", "spec.list[0].b"]);
        assert_eq!(differing(&desired["spec"], &stored["spec"]).len(), 5);
        // A list of another length may be merged with that of others.
        let longer = json!({"spec": {"list": [{"a": 1}, {"a": 2}], "c": 1}});
        assert_eq!(dropped(&desired, &longer), ["spec.cpu"]);
    }

    #[test]
    fn nulls_are_absent() {
        assert_eq!(
            without_nulls(json!({"a": null, "b": {"c": null}, "d": [null]})),
            json!({"b": {}, "d": [null]})
        );
    }
}
