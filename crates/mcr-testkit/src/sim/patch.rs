use json_patch::PatchOperation;
use serde_json::Value;

use super::error::SimError;
use super::kinds::Kind;
use super::merge_strategy::{MergeStrategy, item_key};
use super::schema::ListKind;

/// A patch that is not an apply.
#[derive(Debug)]
pub enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    /// Merges lists whose items have names. Supports `$patch: replace` and `delete` and `$deleteFromPrimitiveList`.
    /// Ignores `$setElementOrder` and `$retainKeys`.
    Strategic(Value),
}

impl Patch {
    pub fn parse(kind: &Kind, media: &str, body: &[u8]) -> Result<Self, SimError> {
        let custom = kind.custom.is_some();
        match media {
            "application/json-patch+json" => {
                let patch = serde_json::from_slice(body)
                    .map_err(|error| SimError::bad_request(format!("error decoding patch: {error}")))?;
                Ok(Self::Json(patch))
            }
            "application/merge-patch+json" => Ok(Self::Merge(Self::object(body)?)),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic(Self::object(body)?)),
            _ => Err(Self::unknown_format(kind)),
        }
    }

    pub fn unknown_format(kind: &Kind) -> SimError {
        let formats = match kind.custom {
            Some(_) => "application/json-patch+json, application/merge-patch+json",
            None => "JSON, merge and strategic merge patches",
        };
        SimError::unsupported_media_type(formats)
    }

    fn object(body: &[u8]) -> Result<Value, SimError> {
        let object = serde_json::from_slice(body).ok().filter(Value::is_object);
        object.ok_or_else(|| SimError::bad_request("error decoding patch: it is no JSON object"))
    }

    /// The patched object.
    pub fn apply(&self, kind: &Kind, before: &Value) -> Result<Value, SimError> {
        let mut object = before.clone();
        match self {
            Self::Json(patch) => {
                for operation in &patch.0 {
                    if tests_that_nothing_is_there(operation, &object) {
                        continue;
                    }
                    json_patch::patch(&mut object, std::slice::from_ref(operation)).map_err(|_| {
                        let message = "the server rejected our request due to an error in our request";
                        SimError::new(422, "Invalid", message).with(serde_json::json!({}))
                    })?;
                }
            }
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Strategic(patch) => merge(MergeStrategy::root(kind), &mut object, patch),
        }
        Ok(object)
    }
}

/// Whether this operation is a `test` for `null` of a field that is missing. It passes in a kube-apiserver, but fails
/// according to RFC 6902. kube's `finalizer` sends such a test.
fn tests_that_nothing_is_there(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(test) = operation else {
        return false;
    };
    let path = test.path.as_str();
    let parent = path
        .rsplit_once('/')
        .and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

fn merge(strategy: MergeStrategy<'_>, value: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *value = patch.clone();
        return;
    };
    if changes.get("$patch").is_some_and(|word| word == "replace") || !value.is_object() {
        *value = without_directives(patch);
        if changes.get("$patch").is_some_and(|word| word == "replace") {
            return;
        }
    }
    let Value::Object(map) = value else { return };
    for (name, change) in changes {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = change.as_array();
            if let Some(Value::Array(items)) = map.get_mut(field) {
                items.retain(|item| !gone.is_some_and(|gone| gone.contains(item)));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        let below = strategy.field(name);
        match (change, map.get_mut(name)) {
            (Value::Null, _) => {
                map.remove(name);
            }
            (Value::Object(_), Some(old)) => {
                if change["$patch"] == "delete" {
                    map.remove(name);
                } else {
                    merge(below, old, change);
                }
            }
            (Value::Array(new), Some(Value::Array(old))) if below.list() != ListKind::Atomic => {
                merge_list(below, old, new);
            }
            _ => {
                map.insert(name.clone(), without_directives(change));
            }
        }
    }
}

fn merge_list(strategy: MergeStrategy<'_>, old: &mut Vec<Value>, new: &[Value]) {
    let list = strategy.list();
    if new.iter().any(|item| item["$patch"] == "replace") {
        *old = new
            .iter()
            .filter(|item| item["$patch"].is_null())
            .map(without_directives)
            .collect();
        return;
    }
    let before: Vec<Option<String>> = old.iter().map(|item| item_key(&list, item)).collect();
    let mut patched = Vec::new();
    for item in new {
        let key = item_key(&list, item);
        let known = old.iter().position(|known| item_key(&list, known) == key);
        let known = known.map(|at| old.remove(at));
        match known {
            _ if item["$patch"] == "delete" => {}
            Some(mut known) => {
                merge(strategy.item(), &mut known, item);
                patched.push(known);
            }
            None => patched.push(without_directives(item)),
        }
    }
    // The order of Kubernetes: items that are in the old list have its order, and the items of the patch come before
    // all others.
    let place = |item: &Value| before.iter().position(|key| *key == item_key(&list, item));
    let mut rest = std::mem::take(old).into_iter().peekable();
    for item in patched {
        while let Some(next) = rest.peek()
            && let (Some(next), Some(mine)) = (place(next), place(&item))
            && next < mine
        {
            old.extend(rest.next());
        }
        old.push(item);
    }
    old.extend(rest);
}

/// A value in the form in which it is inserted, without directives and nulls.
fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
            .map(|(name, value)| (name.clone(), without_directives(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_directives).collect(),
        other => other.clone(),
    }
}
