use serde_json::{Value, json};

use super::clock;
use super::error::SimError;
use super::kinds::Kind;
use super::managed::{self, Entry, Fields};
use super::object::metadata_mut;
use super::schema::ListKind;
use super::shape::{Shape, item_key};

/// Server-side apply: the live object with the configuration merged in, what its manager no longer
/// names removed, and owners written down.
pub(super) fn apply(
    kind: &Kind,
    subresource: &str,
    manager: &str,
    live: &Value,
    mut config: Value,
    force: bool,
) -> Result<Value, SimError> {
    restrict(kind, subresource, &mut config);
    let wanted = managed::named(kind, &config);
    let mut entries = managed::entries(live);
    let is_mine = |entry: &Entry| {
        entry.manager == manager && entry.operation == "Apply" && entry.subresource == subresource
    };
    if entries.is_empty() && live["metadata"]["uid"].is_string() {
        // Made while nothing was tracked: all of it has an owner, as in Kubernetes.
        entries.push(Entry {
            manager: "before-first-apply".to_owned(),
            operation: "Update".to_owned(),
            api_version: kind.api_version(),
            subresource: String::new(),
            time: clock::now(),
            fields: managed::named(kind, live),
        });
    }
    let before = entries
        .iter()
        .find(|entry| is_mine(entry))
        .map(|entry| entry.fields.clone());

    let mut merged = merge(Shape::root(kind), live, &config);
    let (changed, _) = managed::compare(kind, live, &merged);
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !is_mine(entry)) {
        let common = entry.fields.intersect(&changed).intersect(&wanted);
        if common.is_empty() {
            continue;
        }
        if force {
            entry.fields.subtract(&common);
        } else {
            collect(&common, "", &mut |field| {
                let by = match entry.subresource.as_str() {
                    "" => String::new(),
                    subresource => format!(" with subresource \"{subresource}\""),
                };
                let using = match entry.operation.as_str() {
                    "Apply" => String::new(),
                    _ => format!(" using {}", entry.api_version),
                };
                conflicts.push((format!("conflict with \"{}\"{by}{using}", entry.manager), field));
            });
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }

    if let Some(mut dropped) = before.clone() {
        dropped.subtract(&wanted);
        let mut others = Fields::default();
        for entry in entries.iter().filter(|entry| !is_mine(entry)) {
            others.add(&entry.fields);
        }
        dropped.subtract(&others);
        remove(Shape::root(kind), &mut merged, &dropped, &others);
    }
    // What went with a parent is nobody's any more.
    let (_, gone) = managed::compare(kind, live, &merged);
    for entry in &mut entries {
        entry.fields.subtract(&gone);
    }
    let time = entries
        .iter()
        .find(|entry| is_mine(entry))
        .filter(|entry| entry.fields == wanted)
        .map_or_else(clock::now, |entry| entry.time.clone());
    entries.retain(|entry| !is_mine(entry));
    entries.push(Entry {
        manager: manager.to_owned(),
        operation: "Apply".to_owned(),
        api_version: kind.api_version(),
        subresource: subresource.to_owned(),
        time,
        fields: wanted,
    });
    managed::set_entries(&mut merged, entries);
    Ok(merged)
}

/// The part of a configuration that this endpoint looks at.
fn restrict(kind: &Kind, subresource: &str, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    if subresource == "status" {
        map.retain(|name, _| matches!(name.as_str(), "status" | "metadata" | "apiVersion" | "kind"));
        let metadata = metadata_mut(config);
        metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
    } else if kind.has_status {
        map.remove("status");
    }
}

fn conflict(conflicts: &[(String, String)]) -> SimError {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(message, field)| json!({ "reason": "FieldManagerConflict", "message": message, "field": field }))
        .collect();
    let what = match conflicts {
        [(message, field)] => format!("1 conflict: {message}: {field}"),
        many => {
            // Grouped by owner, as Kubernetes prints them.
            let mut text = format!("{} conflicts: ", many.len());
            let mut owners: Vec<&str> = Vec::new();
            for (owner, _) in many {
                if !owners.contains(&owner.as_str()) {
                    owners.push(owner);
                }
            }
            let groups: Vec<String> = owners
                .into_iter()
                .map(|owner| {
                    let fields = many.iter().filter(|(by, _)| by == owner);
                    let fields: Vec<String> = fields.map(|(_, field)| format!("- {field}")).collect();
                    match fields.as_slice() {
                        [one] => format!("{owner}: {}", one.trim_start_matches("- ")),
                        _ => format!(
                            "{}:\n{}",
                            owner.replace("conflict ", "conflicts "),
                            fields.join("\n")
                        ),
                    }
                })
                .collect();
            text.push_str(&groups.join("\n"));
            text
        }
    };
    SimError::new(409, "Conflict", format!("Apply failed with {what}")).with(json!({ "causes": causes }))
}

/// The paths of a set, as messages write them.
fn collect(fields: &Fields, path: &str, to: &mut impl FnMut(String)) {
    if fields.here {
        to(path.to_owned());
    }
    for (name, below) in &fields.below {
        let part = match name.split_once(':') {
            Some(("f", field)) => format!(".{field}"),
            Some(("k", key)) => {
                let key: Value = serde_json::from_str(key).unwrap_or_default();
                let parts = key.as_object().into_iter().flatten();
                let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", parts.join(","))
            }
            Some(("v", value)) => format!("[={value}]"),
            _ => name.clone(),
        };
        collect(below, &format!("{path}{part}"), to);
    }
}

/// The live value with the configured one over it: maps by key, lists by item where their items have
/// names, anything else replaced.
fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    match (live, config) {
        (Value::Object(old), Value::Object(new)) if !shape.is_atomic_map() => {
            let mut merged = old.clone();
            for (name, value) in new {
                let below = merge(shape.field(name), old.get(name).unwrap_or(&Value::Null), value);
                merged.insert(name.clone(), below);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new)) if shape.list() != ListKind::Atomic => {
            let list = shape.list();
            let mut merged = old.clone();
            for item in new {
                let key = item_key(&list, item);
                let found = merged.iter_mut().find(|known| item_key(&list, known) == key);
                match found {
                    Some(known) => *known = merge(shape.item(), known, item),
                    None => merged.push(item.clone()),
                }
            }
            Value::Array(merged)
        }
        (_, config) => config.clone(),
    }
}

/// Removes the fields of a set, and what that leaves empty unless it has another owner.
fn remove(shape: Shape<'_>, value: &mut Value, fields: &Fields, others: &Fields) {
    static NOBODY: Fields = Fields {
        here: false,
        below: std::collections::BTreeMap::new(),
    };
    match value {
        Value::Object(map) => {
            for (key, below) in &fields.below {
                let Some(name) = key.strip_prefix("f:") else {
                    continue;
                };
                if below.here {
                    map.remove(name);
                } else if let Some(value) = map.get_mut(name) {
                    let owners = others.below.get(key);
                    remove(shape.field(name), value, below, owners.unwrap_or(&NOBODY));
                    let emptied = value.as_object().is_some_and(serde_json::Map::is_empty)
                        || value.as_array().is_some_and(Vec::is_empty);
                    if emptied && name != "metadata" && owners.is_none() {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(items) => {
            let list = shape.list();
            items.retain_mut(|item| {
                let Some(key) = item_key(&list, item) else {
                    return true;
                };
                match fields.below.get(&key) {
                    Some(below) if below.here => false,
                    Some(below) => {
                        remove(
                            shape.item(),
                            item,
                            below,
                            others.below.get(&key).unwrap_or(&NOBODY),
                        );
                        true
                    }
                    None => true,
                }
            });
        }
        _ => {}
    }
}
