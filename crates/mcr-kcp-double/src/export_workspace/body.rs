use std::sync::Arc;

use bytes::Bytes;
use form_urlencoded::Serializer;
use serde_json::{Value, json};

use crate::rewrite::pairs;
use mcr_testkit::sim::answer::Answer;
use mcr_testkit::sim::kinds::Kind;
use mcr_testkit::sim::object::metadata_mut;

/// The query of a watch, without the parts that request existing objects.
pub(super) fn only_watch(query: Option<&str>) -> String {
    let mut pairs = pairs(query);
    pairs.retain(|(name, _)| matches!(name.as_str(), "watch" | "timeoutSeconds"));
    Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The object in a request, with additional labels.
pub(super) fn with_labels(body: &Bytes, labels: impl IntoIterator<Item = (String, Value)>) -> Bytes {
    let Ok(mut object) = serde_json::from_slice::<Value>(body) else {
        return body.clone();
    };
    let map = metadata_mut(&mut object)
        .entry("labels")
        .or_insert_with(|| json!({}));
    for (key, value) in labels {
        map[key] = value;
    }
    object.to_string().into()
}

/// The list of a resource that no workspace serves, which has no metadata.
pub(super) fn dead_list(kind: &Arc<Kind>) -> Answer {
    let list = json!({ "kind": kind.list_kind, "apiVersion": kind.api_version(), "items": [] });
    Answer::value(200, &list)
}
