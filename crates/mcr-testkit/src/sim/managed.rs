use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::clock;
use super::kinds::Kind;
use super::merge_strategy::{MergeStrategy, item_key};
use super::object::metadata_mut;
use super::schema::ListKind;

/// A set of fields, as in `fieldsV1`: whether the field itself is in the set, and the sets below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) here: bool,
    pub(super) below: BTreeMap<String, Fields>,
}

impl Fields {
    pub(super) fn leaf() -> Self {
        Self {
            here: true,
            below: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    pub(super) fn from_json(value: &Value) -> Self {
        let Some(map) = value.as_object() else {
            return Self::default();
        };
        let below = map.iter().filter(|(name, _)| *name != ".").map(|(name, value)| {
            let fields = if value.as_object().is_none_or(Map::is_empty) {
                Self::leaf()
            } else {
                Self::from_json(value)
            };
            (name.clone(), fields)
        });
        Self {
            here: map.contains_key("."),
            below: below.collect(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.here && !self.below.is_empty() {
            map.insert(".".to_owned(), json!({}));
        }
        for (name, fields) in &self.below {
            map.insert(name.clone(), fields.to_json());
        }
        Value::Object(map)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.here |= other.here;
        for (name, fields) in &other.below {
            self.below.entry(name.clone()).or_default().add(fields);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.here &= !other.here;
        self.below.retain(|name, fields| {
            if let Some(other) = other.below.get(name) {
                fields.subtract(other);
            }
            !fields.is_empty()
        });
    }

    pub(super) fn intersect(&self, other: &Self) -> Self {
        let below = self.below.iter().filter_map(|(name, fields)| {
            let common = fields.intersect(other.below.get(name)?);
            (!common.is_empty()).then(|| (name.clone(), common))
        });
        Self {
            here: self.here && other.here,
            below: below.collect(),
        }
    }
}

/// Fields no manager owns.
fn is_system(path: &[&str], name: &str) -> bool {
    match path {
        [] => matches!(name, "apiVersion" | "kind"),
        ["metadata"] => matches!(
            name,
            "name"
                | "namespace"
                | "uid"
                | "resourceVersion"
                | "generation"
                | "creationTimestamp"
                | "deletionTimestamp"
                | "deletionGracePeriodSeconds"
                | "selfLink"
                | "managedFields"
        ),
        _ => false,
    }
}

/// The fields that an applied configuration names: its leaves, and the items of its lists.
pub(super) fn named(kind: &Kind, config: &Value) -> Fields {
    let mut fields = Fields::default();
    name_value(MergeStrategy::root(kind), config, &mut Vec::new(), &mut fields);
    fields
}

fn name_value<'a>(strategy: MergeStrategy<'a>, value: &'a Value, path: &mut Vec<&'a str>, to: &mut Fields) {
    match value {
        Value::Object(map) if !map.is_empty() && !strategy.is_atomic_map() => {
            for (name, value) in map {
                if is_system(path, name) {
                    continue;
                }
                let below = to.below.entry(format!("f:{name}")).or_default();
                path.push(name);
                name_value(strategy.field(name), value, path, below);
                path.pop();
            }
            to.below.retain(|_, fields| !fields.is_empty());
        }
        Value::Array(items) if strategy.list() != ListKind::Atomic && !items.is_empty() => {
            let list = strategy.list();
            for item in items {
                let Some(key) = item_key(&list, item) else {
                    continue;
                };
                let below = to.below.entry(key).or_default();
                below.here = true;
                if item.is_object() {
                    path.push("[]");
                    name_value(strategy.item(), item, path, below);
                    path.pop();
                }
            }
        }
        Value::Array(items) if strategy.list() != ListKind::Atomic && items.is_empty() => {}
        _ if path.is_empty() || *path == ["metadata"] => {}
        _ => to.here = true,
    }
}

/// The difference between two states: changed or new fields, and removed fields.
pub(super) fn compare(kind: &Kind, before: &Value, after: &Value) -> (Fields, Fields) {
    let (mut changed, mut gone) = (Fields::default(), Fields::default());
    let mut walk = Walk {
        custom: kind.custom.is_some(),
        path: Vec::new(),
    };
    walk.compare(MergeStrategy::root(kind), before, after, &mut changed, &mut gone);
    (changed, gone)
}

struct Walk<'a> {
    custom: bool,
    path: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn compare(
        &mut self,
        strategy: MergeStrategy<'a>,
        before: &'a Value,
        after: &'a Value,
        changed: &mut Fields,
        gone: &mut Fields,
    ) {
        if before == after {
            return;
        }
        let maps = |value: &Value| value.is_object() || value.is_null();
        if maps(before) && maps(after) && !strategy.is_atomic_map() {
            self.compare_maps(strategy, before, after, changed, gone);
            return;
        }
        let list = strategy.list();
        let lists = |value: &Value| value.is_array() || value.is_null();
        if lists(before) && lists(after) && list != ListKind::Atomic {
            self.compare_lists(strategy, &list, before, after, changed, gone);
            return;
        }
        match after {
            Value::Null => gone.here = true,
            _ => changed.here = true,
        }
    }

    fn compare_maps(
        &mut self,
        strategy: MergeStrategy<'a>,
        before: &'a Value,
        after: &'a Value,
        changed: &mut Fields,
        gone: &mut Fields,
    ) {
        // Structs that Go always encodes have no owner.
        let always = match self.path.as_slice() {
            [] | ["metadata"] => true,
            ["spec" | "status"] => !self.custom,
            _ => false,
        };
        if !always {
            match (before.is_null(), after.is_null()) {
                (true, false) => changed.here = true,
                (false, true) => gone.here = true,
                _ => {}
            }
        }
        static EMPTY: Value = Value::Null;
        let names = before.as_object().into_iter().chain(after.as_object()).flatten();
        for (name, _) in names {
            if is_system(&self.path, name) {
                continue;
            }
            let old = before.get(name).unwrap_or(&EMPTY);
            let new = after.get(name).unwrap_or(&EMPTY);
            let key = format!("f:{name}");
            self.path.push(name);
            self.compare_at(strategy.field(name), key, (old, new), changed, gone);
            self.path.pop();
        }
    }

    fn compare_lists(
        &mut self,
        strategy: MergeStrategy<'a>,
        list: &ListKind,
        before: &'a Value,
        after: &'a Value,
        changed: &mut Fields,
        gone: &mut Fields,
    ) {
        match (before.is_null(), after.is_null()) {
            (true, false) => changed.here = true,
            (false, true) => gone.here = true,
            _ => {}
        }
        static EMPTY: Value = Value::Null;
        let by_key = |value: &'a Value| -> BTreeMap<String, &'a Value> {
            let items = value.as_array().into_iter().flatten();
            items
                .filter_map(|item| Some((item_key(list, item)?, item)))
                .collect()
        };
        let (old, new) = (by_key(before), by_key(after));
        let keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let old = old.get(key).copied().unwrap_or(&EMPTY);
            let new = new.get(key).copied().unwrap_or(&EMPTY);
            self.path.push("[]");
            self.compare_at(strategy.item(), key.clone(), (old, new), changed, gone);
            self.path.pop();
        }
    }

    fn compare_at(
        &mut self,
        strategy: MergeStrategy<'a>,
        key: String,
        (old, new): (&'a Value, &'a Value),
        changed: &mut Fields,
        gone: &mut Fields,
    ) {
        let (mut more, mut less) = (Fields::default(), Fields::default());
        self.compare(strategy, old, new, &mut more, &mut less);
        if !more.is_empty() {
            changed.below.entry(key.clone()).or_default().add(&more);
        }
        if !less.is_empty() {
            gone.below.entry(key).or_default().add(&less);
        }
    }
}

/// An entry of `managedFields`: a manager and its fields.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: String,
    pub(super) fields: Fields,
}

pub(super) fn entries(object: &Value) -> Vec<Entry> {
    let list = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    list.map(|entry| {
        let word = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Entry {
            manager: word("manager"),
            operation: word("operation"),
            api_version: word("apiVersion"),
            subresource: word("subresource"),
            time: word("time"),
            fields: Fields::from_json(&entry["fieldsV1"]),
        }
    })
    .collect()
}

pub(super) fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    // As real servers order them.
    let place = |entry: &Entry| (entry.operation.clone(), entry.time.clone(), entry.manager.clone());
    entries.sort_by_key(place);
    let list: Vec<Value> = entries
        .into_iter()
        .filter(|entry| !entry.fields.is_empty())
        .map(|entry| {
            let mut value = json!({
                "manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version,
                "time": entry.time, "fieldsType": "FieldsV1", "fieldsV1": entry.fields.to_json(),
            });
            if !entry.subresource.is_empty() {
                value["subresource"] = entry.subresource.into();
            }
            value
        })
        .collect();
    let metadata = metadata_mut(object);
    if list.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), list.into());
    }
}

/// Records the manager as the owner of the fields that an update has changed.
pub(super) fn track(kind: &Kind, subresource: &str, manager: &str, before: &Value, after: &mut Value) {
    let (changed, gone) = compare(kind, before, after);
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let mut all = entries(before);
    let mut mine = None;
    for (index, entry) in all.iter_mut().enumerate() {
        entry.fields.subtract(&gone);
        let same = entry.manager == manager
            && entry.operation == "Update"
            && entry.subresource == subresource
            && entry.api_version == kind.api_version();
        if same {
            mine = Some(index);
        } else {
            entry.fields.subtract(&changed);
        }
    }
    if !changed.is_empty() {
        let time = clock::now();
        match mine.and_then(|index| all.get_mut(index)) {
            Some(entry) => {
                entry.fields.add(&changed);
                entry.time = time;
            }
            None => all.push(Entry {
                manager: manager.to_owned(),
                operation: "Update".to_owned(),
                api_version: kind.api_version(),
                subresource: subresource.to_owned(),
                time,
                fields: changed,
            }),
        }
    }
    set_entries(after, all);
}

/// Whether a write changes nothing but times of `managedFields`.
pub(super) fn same(before: &Value, after: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        let entries = value["metadata"]["managedFields"]
            .as_array_mut()
            .into_iter()
            .flatten();
        for entry in entries {
            entry["time"] = Value::Null;
        }
        if let Some(entries) = value["metadata"]["managedFields"].as_array_mut() {
            entries.sort_by_key(ToString::to_string);
        }
        value
    };
    bare(before) == bare(after)
}
