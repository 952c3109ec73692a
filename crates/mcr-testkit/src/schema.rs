//! Compares handwritten types with a published schema.
//!
//! A schema is a text with one line for each field: the version or the kind, the path, and the type.
//!
//! ```
//! use mcr_testkit::schema::{filled, paths};
//! use serde_json::json;
//!
//! let schema = "v1 spec object\nv1 spec.hosts[].name string\nv2 spec.name string";
//! let full = filled(json!({"kind": "Site"}), schema, "v1");
//! assert_eq!(full, json!({"kind": "Site", "spec": {"hosts": [{"name": "text"}]}}));
//! assert!(paths(&full).contains("spec.hosts[].name"));
//! ```

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::suite::fail;

/// Adds all fields in the lines that begin with `word` to an object. Each field gets a sample value of its type.
pub fn filled(mut object: Value, schema: &str, word: &str) -> Value {
    for line in schema.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            [first, path, type_] if first == word => put(&mut object, path, sample(line, type_)),
            [_, _, _] => {}
            _ => fail(format!("not a version or kind, a path and a type: {line}")),
        }
    }
    object
}

fn sample(line: &str, type_: &str) -> Value {
    match type_ {
        "object" => json!({}),
        "array" => json!([]),
        "string" | "string:byte" => "text".into(),
        "string:date-time" => "2026-01-01T00:00:00Z".into(),
        "boolean" => true.into(),
        "integer" | "integer:int32" => 7.into(),
        "integer:int64" => 8.into(),
        _ => fail(format!("the type is not known: {line}")),
    }
}

fn put(object: &mut Value, path: &str, sample: Value) {
    let mut at = object;
    for step in path.split('.') {
        let name = step.trim_end_matches("[]");
        at = &mut at[name];
        if name != step {
            if at.as_array().is_none_or(Vec::is_empty) {
                *at = json!([{}]);
            }
            at = &mut at[0];
        }
    }
    if at.is_null() {
        *at = sample;
    }
}

/// The paths of all fields of an object.
pub fn paths(object: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    find(object, "", &mut found);
    found
}

fn find(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    if !at.is_empty() {
        found.insert(at.to_owned());
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        find(field, format!("{at}.{name}").trim_start_matches('.'), found);
    }
    for item in value.as_array().into_iter().flatten() {
        find(item, &format!("{at}[]"), found);
    }
}
