//! What the sync stores on a source: a finalizer, and the places where targets may exist.

use std::collections::BTreeSet;

use kube::core::{DynamicObject, ObjectMeta};
use mcr::{ClusterName, RequestKey};
use serde_json::{Value, json};

use crate::{
    link::{PREFIX, part},
    name::{self, is_valid},
};

/// An annotation of sources: a comma-separated list of clusters whose targets count as gone. Set it if a cluster is
/// gone for good, so that sources do not wait for it. If the list has the name of the source's own cluster, the copies
/// beside the source count as gone.
pub const ABANDON: &str = "sync.mcr.dev/abandon";

/// An annotation of sources: `true` pauses the sync of the source. Until the annotation is removed or the source is
/// deleted, nothing is written to the targets.
pub const PAUSED: &str = "sync.mcr.dev/paused";

/// The finalizer of the sync.
pub(crate) fn finalizer(sync: &str) -> String {
    format!("{PREFIX}{sync}")
}

/// The annotation that has the record. A label of the same name is the mark of the source. A sync with a label selector
/// finds a source by its mark after the source has lost the selected labels.
pub(crate) fn annotation(sync: &str) -> String {
    format!("{PREFIX}placed.{sync}")
}

pub(crate) fn has_mark(sync: &str, meta: &ObjectMeta) -> bool {
    part(&meta.labels, &annotation(sync)).is_some()
}

/// Whether targets may exist, according to what is stored on the source.
pub(crate) fn may_have_targets(sync: &str, meta: &ObjectMeta) -> bool {
    has_finalizer(sync, meta) || part(&meta.annotations, &annotation(sync)).is_some()
}

pub(crate) fn has_finalizer(sync: &str, meta: &ObjectMeta) -> bool {
    let finalizers = meta.finalizers.as_ref();
    finalizers.is_some_and(|list| list.contains(&finalizer(sync)))
}

/// Whether an object with this last known state can't have been deleted, because the API server deletes nothing that
/// has a finalizer. If it is gone nevertheless, somebody has removed the finalizer unobserved, or the storage of its
/// cluster was restored from a backup.
pub(crate) fn cannot_have_been_deleted(sync: &str, last: &ObjectMeta) -> bool {
    has_finalizer(sync, last) && last.deletion_timestamp.is_none()
}

/// The places in the record. A damaged record counts as empty.
///
/// # Errors
/// The first name in the record that no target can have. The owner of the source may write anything into the record.
pub(crate) fn places(sync: &str, meta: &ObjectMeta) -> Result<BTreeSet<RequestKey>, String> {
    let text = part(&meta.annotations, &annotation(sync)).unwrap_or("[]");
    let places: Vec<(String, Option<String>, String)> = serde_json::from_str(text).unwrap_or_default();
    let names = places
        .iter()
        .flat_map(|(_, namespace, name)| namespace.iter().chain([name]));
    if let Some(impossible) = { names }.find(|name| !is_valid(name)) {
        return Err(impossible.clone());
    }
    let place = |(cluster, namespace, name): (_, Option<String>, String)| {
        Some(RequestKey::new(
            ClusterName::new(cluster).ok()?,
            name::key(namespace, name),
        ))
    };
    Ok(places.into_iter().filter_map(place).collect())
}

/// Whether the owner of the source has declared this cluster gone for good.
pub(crate) fn is_abandoned(meta: &ObjectMeta, cluster: &str) -> bool {
    part(&meta.annotations, ABANDON).is_some_and(|names| names.split(',').any(|name| name.trim() == cluster))
}

/// Whether the owner of the source has paused its sync. A deletion is not paused.
pub(crate) fn is_paused(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_none() && part(&meta.annotations, PAUSED) == Some("true")
}

/// The merge patch that writes the finalizer and the record, or removes both. It applies only to this version of the
/// source. With `marks`, the patch also sets the mark, or removes it.
pub(crate) fn patch(
    sync: &str,
    source: &DynamicObject,
    record: Option<&BTreeSet<RequestKey>>,
    marks: bool,
) -> Value {
    let own = finalizer(sync);
    let mut finalizers = source.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|finalizer| *finalizer != own);
    let text = record.map(|places| {
        finalizers.push(own);
        let place = |place: &RequestKey| json!([&*place.cluster, place.object.namespace, place.object.name]);
        Value::Array(places.iter().map(place).collect()).to_string()
    });
    let mut patch = json!({"metadata": {
        "uid": source.metadata.uid,
        "resourceVersion": source.metadata.resource_version,
        "finalizers": finalizers,
        "annotations": {annotation(sync): text},
    }});
    let is_marked = has_mark(sync, &source.metadata);
    match record {
        Some(_) if marks && !is_marked => patch["metadata"]["labels"] = json!({annotation(sync): "true"}),
        None if is_marked => patch["metadata"]["labels"] = json!({annotation(sync): null}),
        _ => {}
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_is_empty_and_clusters_are_abandoned_by_name() {
        let annotations = json!({"sync.mcr.dev/placed.dbs": "[", "sync.mcr.dev/abandon": "a, b"});
        let damaged: ObjectMeta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
        assert!(places("dbs", &damaged).unwrap().is_empty());
        assert!(is_abandoned(&damaged, "b") && !is_abandoned(&damaged, "c"));
    }
}
