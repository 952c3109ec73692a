use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cause::Cause;
use super::kinds::Kind;
use super::object::{metadata_mut, text};

/// Sets the defaults of the few kinds that have defaults in the simulator. Objects of other kinds, such as pods and
/// deployments, are stored as they were sent.
pub(super) fn on_create(kind: &Kind, object: &mut Value) {
    match &*kind.resource {
        "namespaces" => {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
        }
        "pods" => object["status"] = json!({ "phase": "Pending" }),
        _ => {}
    }
    on_update(kind, object);
}

/// The fields of a new object that the server sets, so that no manager owns them.
pub(super) fn untracked(kind: &Kind, object: &Value) -> Value {
    match &*kind.resource {
        "namespaces" | "pods" => {
            json!({ "spec": if kind.is_namespaces() { object["spec"].clone() } else { Value::Null }, "status": object["status"] })
        }
        _ => Value::Null,
    }
}

pub(super) fn on_update(kind: &Kind, object: &mut Value) {
    drop_empty(kind, object);
    if kind.is_namespaces() {
        let name = text(object, "name").to_owned();
        let labels = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = name.into();
    }
    if &*kind.resource != "secrets" {
        return;
    }
    if let Value::Object(text) = object["stringData"].take() {
        for (key, value) in text {
            let value = value.as_str().unwrap_or_default();
            object["data"][key] = STANDARD.encode(value).into();
        }
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("stringData");
        map.entry("type").or_insert_with(|| "Opaque".into());
    }
}

/// Removes empty fields, as Go's JSON encoder does.
fn drop_empty(kind: &Kind, object: &mut Value) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    metadata_mut(object).retain(|_, value| !empty(value));
    if kind.custom.is_none()
        && let Some(map) = object.as_object_mut()
    {
        map.retain(|name, value| {
            let optional = matches!(name.as_str(), "data" | "binaryData" | "stringData");
            !value.is_null() && (!optional || !empty(value))
        });
    }
}

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Checks the metadata of an object of any kind.
pub(super) fn check_metadata(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(object, "name");
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if kind.group == "rbac.authorization.k8s.io" {
        if matches!(name, "." | "..") || name.contains(['/', '%']) {
            let why = "may not be '.', '..' or contain '/' or '%'";
            causes.push(Cause::invalid("metadata.name", format!("{name:?}"), why));
        }
    } else if kind.is_namespaces() && name.contains('.') {
        causes.push(Cause::invalid(
            "metadata.name",
            format!("{name:?}"),
            "must not contain dots",
        ));
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", format!("{name:?}"), NAME_RULE));
    }
    let owners = object["metadata"]["ownerReferences"].as_array();
    for owner in owners.into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let at = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(&at, "\"\"", "must not be empty"));
            }
        }
    }
    causes
}

fn is_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.first().is_some_and(|byte| inner(*byte))
                && bytes.last().is_some_and(|byte| inner(*byte))
                && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        })
}
