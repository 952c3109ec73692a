use serde_json::{Value, json};

use super::cause::Cause;
use super::error::SimError;
use super::kinds::Kind;
use super::protobuf;
use super::query::Query;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn parse(media: &str, body: &[u8]) -> Result<Value, String> {
    if media.ends_with("yaml") {
        // JSON is valid YAML, but the JSON parser is faster.
        if let Ok(value) = serde_json::from_slice(body) {
            return Ok(value);
        }
        let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
        return serde_saphyr::from_str(text).map_err(|error| error.to_string());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// The object in a body, of the kind that the path names.
pub fn object(kind: &Kind, media: &str, body: &[u8]) -> Result<Value, SimError> {
    if !matches!(media, "" | "application/json" | "application/yaml") {
        let decoded = (media == PROTOBUF).then(|| protobuf::object(body)).flatten();
        if let Some(object) = decoded.filter(|_| kind.custom.is_none()) {
            check_kind(kind, &object)?;
            return Ok(object);
        }
        if media == PROTOBUF {
            return Err(SimError::no_protobuf(kind));
        }
        let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Err(SimError::unsupported_media_type(accepted));
    }
    let object = parse(media, body).ok().filter(Value::is_object).ok_or_else(|| {
        let name = &kind.kind;
        SimError::bad_request(format!(
            "the object provided is unrecognized (must be of type {name})"
        ))
    })?;
    check_kind(kind, &object)?;
    Ok(object)
}

fn check_kind(kind: &Kind, object: &Value) -> Result<(), SimError> {
    let word = |field: &str| object[field].as_str().unwrap_or_default();
    let (given, version) = (word("kind"), word("apiVersion"));
    let (name, expected) = (&kind.kind, kind.api_version());
    // Objects of built-in kinds may lack `apiVersion` and `kind`.
    let built_in = kind.custom.is_none();
    let fits = |given: &str, wanted: &str| given == wanted || built_in && given.is_empty();
    let is_kind = fits(given, name);
    if !fits(version, &expected) || !is_kind && (built_in || given.is_empty()) {
        return Err(SimError::bad_request(format!(
            "{given} in version {version:?} cannot be handled as a {name} in version {expected:?}"
        )));
    }
    if !is_kind {
        let object_name = object["metadata"]["name"].as_str().unwrap_or_default();
        let cause = Cause::invalid("kind", format!("\"{given}\""), format!("must be {name}"));
        return Err(SimError::invalid(&kind.group, given, object_name, &[cause]));
    }
    Ok(())
}

/// An apply configuration.
pub fn apply(kind: &Kind, media: &str, body: &[u8]) -> Result<Value, SimError> {
    if !media.ends_with("yaml") {
        return Err(super::patch::Patch::unknown_format(kind));
    }
    let object =
        parse(media, body).map_err(|why| SimError::bad_request(format!("error decoding YAML: {why}")))?;
    if object["kind"].as_str().is_none() || object["apiVersion"].as_str().is_none() {
        return Err(SimError::bad_request(
            "invalid object type: kind and apiVersion are needed",
        ));
    }
    check_kind(kind, &object)?;
    Ok(object)
}

pub fn apply_options(query: &Query) -> Result<(), SimError> {
    if query.text("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(SimError::invalid_options("PatchOptions", &[cause]));
    }
    Ok(())
}

pub fn patch_options(query: &Query) -> Result<(), SimError> {
    if query.flag("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(SimError::invalid_options("PatchOptions", &[cause]));
    }
    Ok(())
}

/// The `DeleteOptions` of a body.
pub fn delete_options(media: &str, body: &[u8]) -> Result<Value, SimError> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    parse(media, body).map_err(SimError::bad_request)
}
