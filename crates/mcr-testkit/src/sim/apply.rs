use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::error::SimError;
use super::fields::{Fields, Path, compare};
use super::kinds::Kind;
use super::managed::{self, Entry};
use super::merge_strategy::{MergeStrategy, item_key};
use super::object::metadata_mut;
use super::schema::ListKind;

/// Server-side apply: merges the configuration into the live object, removes the fields that the configuration of its
/// manager no longer contains, and records the owners of fields.
pub fn apply(
    kind: &Kind,
    subresource: &str,
    manager: &str,
    live: &Value,
    mut config: Value,
    force: bool,
) -> Result<Value, SimError> {
    restrict(kind, subresource, &mut config);
    let mut others = managed::entries(live);
    if others.is_empty() && live["metadata"]["uid"].is_string() {
        // The object was created without `managedFields`. As in Kubernetes, `before-first-apply` becomes the owner of
        // its fields.
        let fields = Fields::named(kind, live);
        others.push(Entry::new(kind, "Update", "before-first-apply", "", fields));
    }
    let mine = others.iter().position(|entry| {
        entry.manager == manager && entry.operation == "Apply" && entry.subresource == subresource
    });
    let last = mine.map(|at| others.remove(at));

    let mut merged = merge(MergeStrategy::root(kind), live, &config);
    let (changed, _) = compare(kind, live, &merged);
    let mut conflicts = Vec::new();
    for entry in &mut others {
        if force {
            entry.fields.subtract(&changed);
        } else {
            let common = entry.fields.0.intersection(&changed.0).cloned().collect();
            conflicts.extend(conflicts_with(entry, common));
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }

    let mut own = Entry::new(kind, "Apply", manager, subresource, Fields::named(kind, &config));
    if let Some(last) = last {
        let all = others.iter().chain([&own]);
        let kept = Fields(all.flat_map(|entry| entry.fields.0.iter().cloned()).collect());
        let strategy = MergeStrategy::root(kind);
        prune(strategy, &mut merged, &mut Vec::new(), &last.fields, &kept);
        if last.fields == own.fields {
            own.time = last.time;
        }
    }
    others.push(own);
    // Fields that were removed with their parent lose their owners.
    let (_, gone) = compare(kind, live, &merged);
    for entry in &mut others {
        entry.fields.subtract(&gone);
    }
    managed::set_entries(&mut merged, others);
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

/// The conflicts with another manager about these fields, as messages and fields. A field comes before the fields
/// below it.
fn conflicts_with(entry: &Entry, common: BTreeSet<Path>) -> Vec<(String, String)> {
    let by = match entry.subresource.as_str() {
        "" => String::new(),
        subresource => format!(" with subresource \"{subresource}\""),
    };
    let using = match entry.operation.as_str() {
        "Apply" => String::new(),
        _ => format!(" using {}", entry.api_version),
    };
    let message = format!("conflict with \"{}\"{by}{using}", entry.manager);
    let mut paths = Vec::from_iter(common);
    paths.sort_by_key(|path| {
        let parts = path.iter().enumerate();
        Vec::from_iter(parts.map(|(index, part)| (index + 1 < path.len(), part.clone())))
    });
    let paths = paths.into_iter();
    paths
        .map(|path| (message.clone(), path.iter().map(|part| shown(part)).collect()))
        .collect()
}

/// A part of a path, as messages show it.
fn shown(part: &str) -> String {
    match part.split_once(':') {
        Some(("f", field)) => format!(".{field}"),
        Some(("k", key)) => {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            let parts = key.as_object().into_iter().flatten();
            let parts: Vec<String> = parts.map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", parts.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        _ => part.to_owned(),
    }
}

/// Merges the configured value into the live one: maps by key, lists with named items item by item. Any other value is
/// replaced.
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

/// Merges the items of both lists. Items that are only in the live list keep their positions. Items that are in both
/// have the order of the configuration.
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

/// Removes the fields of the last apply that no manager owns any more. When no field below a field has an owner, the
/// field is removed as a whole, including fields without an owner.
fn prune(strategy: MergeStrategy<'_>, value: &mut Value, path: &mut Path, last: &Fields, kept: &Fields) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            path.push(format!("f:{name}"));
            // The name is always part of the configuration.
            let owned = kept.reaches(path) || *path == ["f:metadata"];
            let stays = if last.reaches(path) && owned {
                prune(strategy.field(name), value, path, last, kept);
                let emptied = value.as_object().is_some_and(serde_json::Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                !emptied || kept.0.contains(path)
            } else {
                !last.reaches(path)
            };
            path.pop();
            stays
        }),
        Value::Array(items) => {
            let list = strategy.list();
            items.retain_mut(|item| {
                let Some(key) = item_key(&list, item) else {
                    return true;
                };
                path.push(key);
                let applied = last.reaches(path);
                // Whoever owns a field of an item does not own the item itself.
                let stays = !applied || kept.0.contains(path);
                if applied && stays {
                    prune(strategy.item(), item, path, last, kept);
                }
                path.pop();
                stays
            });
        }
        _ => {}
    }
}
