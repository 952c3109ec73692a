use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clock;
use super::fields::{Fields, compare};
use super::kinds::Kind;
use super::object::metadata_mut;

/// An entry of `managedFields`: a manager and its fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: String,
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
    pub(super) time: String,
    fields_type: String,
    #[serde(rename = "fieldsV1")]
    pub(super) fields: Fields,
}

impl Entry {
    pub(super) fn new(
        kind: &Kind,
        operation: &str,
        manager: &str,
        subresource: &str,
        fields: Fields,
    ) -> Self {
        Self {
            manager: manager.to_owned(),
            operation: operation.to_owned(),
            api_version: kind.api_version(),
            subresource: subresource.to_owned(),
            time: clock::now(),
            fields_type: "FieldsV1".to_owned(),
            fields,
        }
    }
}

pub(super) fn entries(object: &Value) -> Vec<Entry> {
    Vec::deserialize(&object["metadata"]["managedFields"]).unwrap_or_default()
}

pub(super) fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.0.is_empty());
    // The order in which real servers sort them.
    entries.sort_by_key(|entry| (entry.operation.clone(), entry.time.clone(), entry.manager.clone()));
    let metadata = metadata_mut(object);
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), json!(entries));
    }
}

/// Records the manager as the owner of the fields that an update has changed.
pub(super) fn track(kind: &Kind, subresource: &str, manager: &str, before: &Value, after: &mut Value) {
    let (changed, gone) = compare(kind, before, after);
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let mut mine = Entry::new(kind, "Update", manager, subresource, changed.clone());
    let mut all = entries(before);
    all.retain_mut(|entry| {
        entry.fields.subtract(&gone);
        let same = entry.manager == manager
            && entry.operation == "Update"
            && entry.subresource == subresource
            && entry.api_version == mine.api_version;
        if same {
            if changed.0.is_empty() {
                mine.time.clone_from(&entry.time);
            }
            mine.fields.0.append(&mut entry.fields.0);
        } else {
            entry.fields.subtract(&changed);
        }
        !same
    });
    all.push(mine);
    set_entries(after, all);
}

/// Whether a write changes nothing but times in `managedFields`.
pub(super) fn same(before: &Value, after: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        if let Some(entries) = value["metadata"]["managedFields"].as_array_mut() {
            for entry in entries.iter_mut() {
                entry["time"] = Value::Null;
            }
            entries.sort_by_key(ToString::to_string);
        }
        value
    };
    bare(before) == bare(after)
}
