use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::merge_strategy::{MergeStrategy, item_key};
use super::schema::ListKind;

/// The path of a field, in the notation of `fieldsV1`: `f:` for a field, `k:` for an item by its keys, `v:` for an
/// item by its value.
pub(super) type Path = Vec<String>;

/// A set of fields, as JSON in the form of `fieldsV1`. A map or list is a member of its own, apart from the fields
/// below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub(super) struct Fields(pub(super) BTreeSet<Path>);

impl Fields {
    /// The fields that an applied configuration contains: its leaves, and the items of its lists.
    pub(super) fn named(kind: &Kind, config: &Value) -> Self {
        Self(owned(kind, config, true).into_keys().collect())
    }

    /// Whether the set contains this field or a field below it.
    pub(super) fn reaches(&self, path: &Path) -> bool {
        let next = self.0.range(path.clone()..).next();
        next.is_some_and(|next| next.starts_with(path))
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.0.retain(|path| !other.0.contains(path));
    }

    fn read(&mut self, value: &Map<String, Value>, path: &mut Path) {
        for (name, below) in value {
            path.push(name.clone());
            match below.as_object() {
                _ if name == "." => drop(self.0.insert(path[..path.len() - 1].to_vec())),
                Some(below) if !below.is_empty() => self.read(below, path),
                _ => drop(self.0.insert(path.clone())),
            }
            path.pop();
        }
    }
}

impl From<Value> for Fields {
    fn from(value: Value) -> Self {
        let mut fields = Self::default();
        fields.read(value.as_object().unwrap_or(&Map::new()), &mut Vec::new());
        fields
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        let mut root = json!({});
        let mut paths = fields.0.iter().peekable();
        while let Some(path) = paths.next() {
            let at = path.iter().fold(&mut root, |at, part| &mut at[part]);
            // The fields below this one follow it directly.
            if paths.peek().is_some_and(|next| next.starts_with(path)) {
                at["."] = json!({});
            } else {
                *at = json!({});
            }
        }
        root
    }
}

/// The difference between two states: changed or new fields, and removed fields.
pub(super) fn compare(kind: &Kind, before: &Value, after: &Value) -> (Fields, Fields) {
    let (old, new) = (owned(kind, before, false), owned(kind, after, false));
    let changed = new.iter().filter(|(path, value)| old.get(*path) != Some(value));
    let gone = old.keys().filter(|path| !new.contains_key(*path));
    (
        Fields(changed.map(|(path, _)| path.clone()).collect()),
        Fields(gone.cloned().collect()),
    )
}

/// The fields of an object that can have an owner, with their values. A value that is merged field by field is null
/// here.
fn owned<'a>(kind: &'a Kind, object: &'a Value, applied: bool) -> BTreeMap<Path, &'a Value> {
    let mut walk = Walk {
        applied,
        custom: kind.custom.is_some(),
        names: Vec::new(),
        path: Vec::new(),
        found: BTreeMap::new(),
    };
    walk.value(MergeStrategy::root(kind), object);
    walk.found
}

struct Walk<'a> {
    /// Whether the object is an applied configuration. Such a configuration owns items of lists, but neither maps nor
    /// lists.
    applied: bool,
    custom: bool,
    names: Vec<&'a str>,
    path: Path,
    found: BTreeMap<Path, &'a Value>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, strategy: MergeStrategy<'a>, value: &'a Value) {
        match value {
            Value::Null if !self.applied => {}
            Value::Object(map) if !strategy.is_atomic_map() => {
                // Go always encodes these structs, so they have no owner.
                let always = match self.names.as_slice() {
                    [] | ["metadata"] => true,
                    ["spec" | "status"] => !self.applied && !self.custom,
                    _ => false,
                };
                let own = !self.applied || map.is_empty() || self.names.last() == Some(&"[]");
                if own && !always {
                    self.found.insert(self.path.clone(), &Value::Null);
                }
                for (name, value) in map {
                    if !is_system(&self.names, name) {
                        self.below(strategy.field(name), name, format!("f:{name}"), value);
                    }
                }
            }
            Value::Array(items) if strategy.list() != ListKind::Atomic => {
                if !self.applied {
                    self.found.insert(self.path.clone(), &Value::Null);
                }
                let list = strategy.list();
                for item in items {
                    if let Some(key) = item_key(&list, item) {
                        self.below(strategy.item(), "[]", key, item);
                    }
                }
            }
            leaf => drop(self.found.insert(self.path.clone(), leaf)),
        }
    }

    fn below(&mut self, strategy: MergeStrategy<'a>, name: &'a str, part: String, value: &'a Value) {
        self.names.push(name);
        self.path.push(part);
        self.value(strategy, value);
        self.path.pop();
        self.names.pop();
    }
}

/// Whether this is a field that no manager owns.
fn is_system(names: &[&str], name: &str) -> bool {
    match names {
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
