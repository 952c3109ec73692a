//! What the sync keeps on a source: a finalizer, and the places where targets may exist.

use std::collections::BTreeSet;

use kube::core::{DynamicObject, ObjectMeta};
use mcr::{ClusterName, ObjectKey, RequestKey};
use serde_json::{Value, json};

use crate::{link::PREFIX, name::is_valid};

/// An annotation of sources: names of clusters, separated by commas, whose targets count as gone. People set it for a cluster
/// that is gone for good, so that the sources are released. With the name of the source's own cluster, the copies beside the source
/// count as gone.
pub const ABANDON: &str = "sync.mcr.dev/abandon";

/// An annotation of sources: `true` pauses the sync of the source. Nothing is written to its targets until it is removed, or the source is
/// deleted.
pub const PAUSED: &str = "sync.mcr.dev/paused";

/// The finalizer of the sync.
pub(crate) fn finalizer(sync: &str) -> String {
    format!("{PREFIX}{sync}")
}

/// The annotation with the record. A label of this name is the mark, by which a sync with a selector finds a source that has lost its labels.
pub(crate) fn annotation(sync: &str) -> String {
    format!("{PREFIX}placed.{sync}")
}

pub(crate) fn has_mark(sync: &str, meta: &ObjectMeta) -> bool {
    meta.labels
        .iter()
        .any(|labels| labels.contains_key(&annotation(sync)))
}

/// Whether targets of this source may exist, as far as the source knows.
pub(crate) fn is_taken(sync: &str, meta: &ObjectMeta) -> bool {
    has_finalizer(sync, meta) || text(meta, &annotation(sync)).is_some()
}

pub(crate) fn has_finalizer(sync: &str, meta: &ObjectMeta) -> bool {
    let finalizer = finalizer(sync);
    meta.finalizers
        .as_ref()
        .is_some_and(|list| list.contains(&finalizer))
}

/// Whether this object, as it was last known, can't have been deleted: the API server deletes nothing that has a finalizer. If it is
/// gone nevertheless, somebody has removed the finalizer unseen, or the storage of its cluster was restored from a backup.
pub(crate) fn may_not_be_deleted(sync: &str, last: &ObjectMeta) -> bool {
    has_finalizer(sync, last) && last.deletion_timestamp.is_none()
}

fn text<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    Some(meta.annotations.as_ref()?.get(key)?.as_str())
}

/// The places in the record. A record that somebody damaged counts as empty.
///
/// # Errors
/// A name in it that no target has: the owner of the source may write anything.
pub(crate) fn places(sync: &str, meta: &ObjectMeta) -> Result<BTreeSet<RequestKey>, String> {
    let text = text(meta, &annotation(sync)).unwrap_or("[]");
    let places: Vec<(String, Option<String>, String)> = serde_json::from_str(text).unwrap_or_default();
    let names = places
        .iter()
        .flat_map(|(_, namespace, name)| namespace.iter().chain([name]));
    if let Some(impossible) = names.into_iter().find(|name| !is_valid(name)) {
        return Err(impossible.clone());
    }
    let place = |(cluster, namespace, name): (String, Option<String>, String)| {
        let object = match namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster_scoped(name),
        };
        Some(RequestKey::new(ClusterName::new(cluster).ok()?, object))
    };
    Ok(places.into_iter().filter_map(place).collect())
}

/// Whether the owner of the source says that this cluster is gone for good.
pub(crate) fn is_abandoned(meta: &ObjectMeta, cluster: &str) -> bool {
    text(meta, ABANDON).is_some_and(|names| names.split(',').any(|name| name.trim() == cluster))
}

/// Whether the owner of the source has paused it. A deletion does not wait.
pub(crate) fn is_paused(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_none() && text(meta, PAUSED) == Some("true")
}

/// The merge patch that writes the finalizer and the record, or removes both. It applies to this version of the source only. The mark
/// is set with them if `marks`, and removed with them.
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

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let cluster = ClusterName::new("berlin").unwrap();
        let places = BTreeSet::from([
            RequestKey::new(cluster.clone(), ObjectKey::namespaced("shop", "db")),
            RequestKey::new(cluster, ObjectKey::cluster_scoped("db")),
        ]);
        let mut source = DynamicObject::new(
            "x",
            &kube::core::ApiResource::erase::<kube::core::DynamicObject>(&kube::core::ApiResource::from_gvk(
                &kube::core::GroupVersionKind::gvk("", "v1", "ConfigMap"),
            )),
        );
        source.metadata.finalizers = Some(vec!["theirs".into()]);
        let written = patch("dbs", &source, Some(&places), true);
        let claimed = meta(written["metadata"].clone());
        assert_eq!(self::places("dbs", &claimed).unwrap(), places);
        assert!(has_finalizer("dbs", &claimed) && !has_finalizer("other", &claimed));
        assert!(self::places("other", &claimed).unwrap().is_empty());
        source.metadata.finalizers = claimed.finalizers.clone();
        let released = patch("dbs", &source, None, true);
        assert_eq!(released["metadata"]["finalizers"], json!(["theirs"]));
        assert_eq!(
            released["metadata"]["annotations"],
            json!({"sync.mcr.dev/placed.dbs": null})
        );
    }

    #[test]
    fn a_damaged_record_is_empty_and_clusters_are_abandoned_by_name() {
        let damaged =
            meta(json!({"annotations": {"sync.mcr.dev/placed.dbs": "[", "sync.mcr.dev/abandon": "a, b"}}));
        assert!(places("dbs", &damaged).unwrap().is_empty());
        assert!(is_abandoned(&damaged, "b") && !is_abandoned(&damaged, "c"));
    }
}
