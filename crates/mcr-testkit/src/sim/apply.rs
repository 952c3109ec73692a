use serde_json::{Value, json};

use super::clock;
use super::error::SimError;
use super::kinds::Kind;
use super::managed::{self, Entry, Fields};
use super::merge_strategy::{MergeStrategy, item_key};
use super::object::metadata_mut;
use super::schema::ListKind;

/// Server-side apply: merges the configuration into the live object, removes the fields that its
/// manager no longer names, and records the owners of fields.
pub fn apply(
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
        // The object was made without `managedFields`. Its fields get the owner `before-first-apply`, as in Kubernetes.
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

    let mut merged = merge(MergeStrategy::root(kind), live, &config);
    let (changed, _) = managed::compare(kind, live, &merged);
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !is_mine(entry)) {
        let common = entry.fields.intersect(&changed);
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

    if let Some(last) = before {
        let mut kept = wanted.clone();
        for entry in entries.iter().filter(|entry| !is_mine(entry)) {
            kept.add(&entry.fields);
        }
        prune(MergeStrategy::root(kind), &mut merged, &last, &kept, true);
    }
    // Fields that were removed with their parent lose their owners.
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

/// Keeps the part of a configuration that this endpoint uses.
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
    let each = conflicts
        .iter()
        .map(|(message, field)| format!("{message}: {field}"));
    let (count, all) = (conflicts.len(), each.collect::<Vec<_>>().join("; "));
    let what = format!("{count} conflict{}: {all}", if count == 1 { "" } else { "s" });
    SimError::new(409, "Conflict", format!("Apply failed with {what}")).with(json!({ "causes": causes }))
}

/// Collects the paths of a set in the order of the messages: the fields of a level before those below them.
fn collect(fields: &Fields, path: &str, to: &mut impl FnMut(String)) {
    let part = |name: &String| match name.split_once(':') {
        Some(("f", field)) => format!("{path}.{field}"),
        Some(("k", key)) => {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            let parts = key.as_object().into_iter().flatten();
            let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
            format!("{path}[{}]", parts.join(","))
        }
        Some(("v", value)) => format!("{path}[={value}]"),
        _ => format!("{path}{name}"),
    };
    for (name, _) in fields.below.iter().filter(|(_, below)| below.here) {
        to(part(name));
    }
    for (name, below) in &fields.below {
        collect(below, &part(name), to);
    }
}

/// Merges the configured value into the live one: maps by key, lists with named items by item.
/// Replaces any other value.
fn merge(strategy: MergeStrategy<'_>, live: &Value, config: &Value) -> Value {
    match (live, config) {
        (Value::Object(old), Value::Object(new)) if !strategy.is_atomic_map() => {
            let mut merged = old.clone();
            for (name, value) in new {
                let below = merge(strategy.field(name), old.get(name).unwrap_or(&Value::Null), value);
                merged.insert(name.clone(), below);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new)) if strategy.list() != ListKind::Atomic => {
            let list = strategy.list();
            let merged = merge_list(strategy, &list, old, new);
            Value::Array(merged)
        }
        (_, config) => config.clone(),
    }
}

/// The items of both lists in one order: items of the live list only keep their positions, and
/// items of both are in the order of the configuration.
fn merge_list(strategy: MergeStrategy<'_>, list: &ListKind, live: &[Value], config: &[Value]) -> Vec<Value> {
    let keys =
        |items: &[Value]| -> Vec<Option<String>> { items.iter().map(|item| item_key(list, item)).collect() };
    let (old, new) = (keys(live), keys(config));
    let mut done = vec![false; live.len()];
    let mut merged = Vec::new();
    let mut left = live.iter().enumerate().peekable();
    for (item, key) in config.iter().zip(&new) {
        while let Some((index, known)) = left.peek().copied() {
            if done.get(index) == Some(&true) {
                left.next();
            } else if !new.contains(old.get(index).unwrap_or(&None)) {
                merged.push(known.clone());
                left.next();
            } else {
                break;
            }
        }
        let at = old.iter().position(|known| known == key);
        match at.and_then(|at| Some((live.get(at)?, done.get_mut(at)?))) {
            Some((known, done)) => {
                *done = true;
                merged.push(merge(strategy.item(), known, item));
            }
            None => merged.push(item.clone()),
        }
    }
    let rest = left.filter(|(index, _)| done.get(*index) == Some(&false));
    merged.extend(rest.map(|(_, known)| known.clone()));
    merged
}

/// Removes the fields of the last apply that no manager owns now. A field is removed as a whole, with
/// its fields without owner, once no field below it has an owner.
fn prune(strategy: MergeStrategy<'_>, value: &mut Value, last: &Fields, kept: &Fields, root: bool) {
    match value {
        Value::Object(map) => {
            for (key, below) in &last.below {
                let Some(name) = key.strip_prefix("f:") else {
                    continue;
                };
                let owners = kept.below.get(key);
                match (owners, map.get_mut(name)) {
                    (Some(owners), Some(value)) => {
                        prune(strategy.field(name), value, below, owners, false);
                        let emptied = value.as_object().is_some_and(serde_json::Map::is_empty)
                            || value.as_array().is_some_and(Vec::is_empty);
                        if emptied && !owners.here {
                            map.remove(name);
                        }
                    }
                    // The name of the object is always applied.
                    (None, Some(value)) if root && name == "metadata" => {
                        prune(strategy.field(name), value, below, &Fields::default(), false);
                    }
                    _ => {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(items) => {
            let list = strategy.list();
            items.retain_mut(|item| {
                let Some(key) = item_key(&list, item) else {
                    return true;
                };
                match (last.below.get(&key), kept.below.get(&key)) {
                    // The owner of a field of an item does not own the item.
                    (Some(_), owners) if owners.is_none_or(|owners| !owners.here) => false,
                    (Some(_), None) => false,
                    (Some(below), Some(owners)) => {
                        prune(strategy.item(), item, below, owners, false);
                        true
                    }
                    (None, _) => true,
                }
            });
        }
        _ => {}
    }
}
