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
    let name = &kind.kind;
    let unreadable = |why: &str| {
        SimError::bad_request(format!(
            "the object provided is unrecognized (must be of type {name}): {why}"
        ))
    };
    let object =
        parse(media, body).map_err(|why| unreadable(&format!("couldn't get version/kind; {why}")))?;
    if !object.is_object() {
        return Err(unreadable("couldn't get version/kind; json parse error"));
    }
    check_kind(kind, &object)?;
    Ok(object)
}

fn check_kind(kind: &Kind, object: &Value) -> Result<(), SimError> {
    let word = |field: &str| object[field].as_str().unwrap_or_default();
    let (given, version) = (word("kind"), word("apiVersion"));
    let expected = kind.api_version();
    let name = &kind.kind;
    if kind.custom.is_none() {
        let fits = (given.is_empty() || given == *name) && (version.is_empty() || version == expected);
        if fits {
            return Ok(());
        }
        let (given, version) = (
            if given.is_empty() { name } else { given },
            if version.is_empty() { &expected } else { version },
        );
        return Err(SimError::bad_request(format!(
            "{given} in version \"{version}\" cannot be handled as a {name}"
        )));
    }
    if given.is_empty() {
        let text: String = object.to_string();
        return Err(SimError::bad_request(format!(
            "the object provided is unrecognized (must be of type {name}): Object 'Kind' is missing in '{text}'"
        )));
    }
    if version != expected {
        return Err(SimError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if given != *name {
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
    let word = |field: &str| object[field].as_str().unwrap_or_default();
    if word("kind").is_empty() || word("apiVersion").is_empty() {
        let (version, name) = (word("apiVersion"), word("kind"));
        return Err(SimError::bad_request(format!(
            "invalid object type: {version}{}, Kind={name}",
            if version.contains('/') { "" } else { "/" }
        )));
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

/// The `DeleteOptions` of a body, or of the query where there is no body.
pub fn delete_options(media: &str, body: &[u8], query: &Query) -> Result<Value, SimError> {
    let mut options = json!({});
    if body.is_empty() {
        for name in ["propagationPolicy", "gracePeriodSeconds", "orphanDependents"] {
            if let Some(text) = query.get(name) {
                options[name] = serde_json::from_str(text).unwrap_or_else(|_| text.into());
            }
        }
    } else {
        options = parse(media, body).map_err(SimError::bad_request)?;
    }
    let policy = options["propagationPolicy"].as_str();
    if let Some(policy) = policy
        && !matches!(policy, "Foreground" | "Background" | "Orphan")
    {
        let supported = ["Foreground", "Background", "Orphan", "nil"];
        let cause = Cause::unsupported("propagationPolicy", format!("\"{policy}\""), &supported);
        return Err(SimError::invalid_options("DeleteOptions", &[cause]));
    }
    Ok(options)
}

pub fn to_yaml(json: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(json).ok()?;
    serde_saphyr::to_string(&value).ok()
}
