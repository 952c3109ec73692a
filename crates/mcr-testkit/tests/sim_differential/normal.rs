//! Replaces values that may differ between two servers by names that are the same for both.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::script::Answer;

/// Refusals of what is malformed or invalid: of these the code and the reason are compared. The rest is the words of Go's
/// parsers.
const LENIENT: &[u64] = &[400, 406, 415, 422, 500];

/// Names UIDs and versions by the order in which they appear.
#[derive(Default)]
pub(crate) struct Normal {
    uids: HashMap<String, usize>,
    versions: HashMap<String, usize>,
}

pub(crate) fn transcript(answers: &[Answer]) -> Vec<Value> {
    let mut normal = Normal::default();
    answers.iter().map(|answer| normal.answer(answer)).collect()
}

fn symbol(known: &mut HashMap<String, usize>, text: &str, what: &str) -> Value {
    let next = known.len();
    let number = known.entry(text.to_owned()).or_insert(next);
    format!("<{what} {number}>").into()
}

impl Normal {
    fn answer(&mut self, answer: &Answer) -> Value {
        let mut body = answer.body.clone();
        if let Value::Array(events) = &mut body {
            // When a bookmark comes is the server's choice, except the one that ends the start.
            events.retain(|event| {
                event["type"] != "BOOKMARK"
                    || event.pointer("/object/metadata/annotations").is_some()
                    || event["object"]["kind"] == "Table"
            });
        }
        self.value(&mut body);
        serde_json::json!({ "code": answer.code, "media": answer.media, "body": body })
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => self.map(map),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            _ => {}
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>) {
        if map.get("kind").is_some_and(|kind| kind == "Status") {
            status(map);
        }
        let list = map.contains_key("items") || map.get("kind").is_some_and(|kind| kind == "Table");
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            let bookmark = metadata
                .get("annotations")
                .is_some_and(|annotations| annotations.get("k8s.io/initial-events-end").is_some());
            // Other writes move the version of a list.
            if list || bookmark {
                metadata
                    .entry("resourceVersion")
                    .and_modify(|version| *version = "<list>".into());
            }
            if metadata.contains_key("continue") {
                metadata.entry("continue").and_modify(|token| {
                    let empty = token.as_str().unwrap_or_default().is_empty();
                    *token = if empty { "".into() } else { "<token>".into() };
                });
            }
            // The order of managers is by time to the second.
            if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                managers.sort_by_key(|entry| {
                    format!(
                        "{}{}{}",
                        entry["manager"], entry["operation"], entry["subresource"]
                    )
                });
            }
        }
        // For a client certificate this field has the fingerprint.
        map.remove("extra");
        // Of columns.
        map.remove("description");
        // Left out by real servers in a rare case.
        if map.contains_key("fieldsV1") {
            map.remove("time");
        }
        for (name, value) in map.iter_mut() {
            match (name.as_str(), &*value) {
                ("uid", Value::String(uid)) if uid.len() == 36 => *value = symbol(&mut self.uids, uid, "uid"),
                ("resourceVersion", Value::String(version)) if version.parse::<u64>().is_ok() => {
                    *value = symbol(&mut self.versions, version, "version");
                }
                ("creationTimestamp" | "deletionTimestamp" | "lastTransitionTime", Value::String(_)) => {
                    *value = "<time>".into()
                }
                ("expirationTimestamp", _) => *value = "<time>".into(),
                ("name", Value::String(text)) if text.starts_with("gen-") => *value = "gen-<random>".into(),
                ("cells", Value::Array(cells)) => {
                    let cells = cells.iter().map(|cell| match cell.as_str() {
                        Some(text)
                            if text.ends_with('s') && text.trim_end_matches('s').parse::<u32>().is_ok() =>
                        {
                            "<age>".into()
                        }
                        _ => cell.clone(),
                    });
                    *value = cells.collect();
                }
                _ => self.value(value),
            }
        }
    }
}

fn status(map: &mut Map<String, Value>) {
    let code = map.get("code").and_then(Value::as_u64);
    if code.is_some_and(|code| LENIENT.contains(&code)) {
        map.retain(|name, _| matches!(name.as_str(), "kind" | "code" | "reason"));
        return;
    }
    // Several conflicts are grouped by their owners.
    if let Some(Value::Array(causes)) = map
        .get_mut("details")
        .and_then(|details| details.get_mut("causes"))
    {
        causes.sort_by_key(ToString::to_string);
    }
    let message = map.get("message").and_then(Value::as_str).unwrap_or_default();
    // The second has the prefix of keys in etcd.
    if message.contains("conflicts: ") || message.contains("StorageError: ") {
        map.insert("message".to_owned(), "<not compared>".into());
        return;
    }
    let mut numbered = String::new();
    let mut digits = String::new();
    for character in message.chars().chain([' ']) {
        if character.is_ascii_hexdigit() || (character == '-' && !digits.is_empty()) {
            digits.push(character);
            continue;
        }
        // UIDs and versions.
        let number = digits.len() > 1 && digits.chars().all(|digit| digit.is_ascii_digit());
        numbered.push_str(if number || digits.len() == 36 {
            "<n>"
        } else {
            &digits
        });
        digits.clear();
        numbered.push(character);
    }
    map.insert("message".to_owned(), numbered.trim_end().into());
}
