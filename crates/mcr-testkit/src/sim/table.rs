use std::time::Duration;

use serde_json::{Value, json};

use super::clock;
use super::kinds::Kind;
use super::object::Object;

/// How much of its object a row of a table contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// The table form of a list, which `kubectl get` shows.
///
/// Custom resources have the columns of their CRD. Built-in kinds have only name and age, although real servers have
/// more columns for most of them.
pub fn table(kind: &Kind, metadata: Value, rows: Vec<Value>, with_columns: bool) -> Value {
    let columns = if with_columns { columns(kind) } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn columns(kind: &Kind) -> Value {
    let column = |name: &str, of_type: &str, format: &str, priority: i64| json!({ "name": name, "type": of_type, "format": format, "description": name, "priority": priority });
    let mut columns = vec![column("Name", "string", "name", 0)];
    match &kind.custom {
        Some(custom) => {
            let own = custom.columns.iter();
            columns.extend(own.map(|(name, of_type, _, priority)| column(name, of_type, "", *priority)));
        }
        None => columns.push(column("Age", "string", "", 0)),
    }
    Value::Array(columns)
}

pub fn row(kind: &Kind, object: &Object, include: Include) -> Value {
    let value = object.value_as(kind);
    let mut cells = vec![json!(object.name())];
    match &kind.custom {
        Some(custom) => {
            for (_, column_type, path, _) in &custom.columns {
                let found = path
                    .trim_start_matches('.')
                    .split('.')
                    .try_fold(&value, |value, part| value.get(part))
                    .cloned()
                    .unwrap_or_default();
                cells.push(if column_type == "date" { age(&found) } else { found });
            }
        }
        None => cells.push(age(&value["metadata"]["creationTimestamp"])),
    }
    let object = match include {
        Include::None => Value::Null,
        Include::Object => value,
        Include::Metadata => {
            let metadata = &value["metadata"];
            json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
        }
    };
    json!({ "cells": cells, "object": object })
}

fn age(time: &Value) -> Value {
    match time.as_str().and_then(clock::since) {
        Some(age) => human(age).into(),
        None => "<unknown>".into(),
    }
}

/// Writes a short duration as `kubectl` does.
fn human(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if !seconds.is_multiple_of(60) => format!("{}m{}s", seconds / 60, seconds % 60),
        120..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
