use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::error::SimError;
use super::kinds::Kind;
use super::object;
use super::patch::Patch;
use super::read;
use super::request::Request;
use super::route::Target;
use super::write::{Verb, Write};

/// The scale subresource: `spec.replicas` of the object under another kind. CRDs with other paths for
/// it are not known.
pub(super) fn answer(
    request: &Request<'_>,
    kind: &Arc<Kind>,
    target: &Target,
    verb: &str,
) -> Result<Answer, SimError> {
    let key = request.cluster.key(&target.namespace, &target.name);
    let live = request.cluster.store().get(&kind.table, &key).cloned();
    let live = live.ok_or_else(|| SimError::not_found(kind, &target.name))?;
    let live = live.value_as(kind);
    let now = scale_of(&live);
    let wanted = match verb {
        "get" => return Ok(Answer::value(200, &now)),
        "update" => {
            serde_json::from_slice(request.body).map_err(|error| SimError::bad_request(error.to_string()))?
        }
        "patch" if request.content_type().starts_with("application/apply-patch+") => {
            return Err(Patch::unknown_format(kind));
        }
        "patch" => {
            read::patch_options(request.query)?;
            Patch::parse(kind, request.content_type(), request.body)?.apply(kind, &now)?
        }
        _ => return Err(SimError::method_not_allowed()),
    };
    let mut object = live;
    object["spec"]["replicas"] = wanted["spec"]["replicas"].clone();
    let version = object::text(&wanted, "resourceVersion");
    if !version.is_empty() {
        object::metadata_mut(&mut object).insert("resourceVersion".to_owned(), version.into());
    }
    let mut write = Write::new(kind, &target.namespace, &target.name, "");
    write.manager = request.manager();
    let done = write.run(request.cluster, Verb::Update(object))?;
    Ok(Answer::value(200, &scale_of(&done.object.value_as(kind))))
}

fn scale_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let selector = object["spec"]["selector"]["matchLabels"]
        .as_object()
        .or(object["spec"]["selector"].as_object());
    let selector: Vec<String> = selector
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    let mut status = json!({ "replicas": object["status"]["replicas"].as_i64().unwrap_or(0) });
    if !selector.is_empty() {
        status["selector"] = selector.join(",").into();
    }
    let mut small = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            small[field] = value.clone();
        }
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": small,
        "spec": { "replicas": object["spec"]["replicas"].as_i64().unwrap_or(0) }, "status": status,
    })
}
