use super::control::{logical_cluster, namespace};
use super::inner::Inner;
use super::kinds::LOGICAL_CLUSTERS;

/// Makes the logical cluster `root` on the first shard.
pub(super) fn make(inner: &Inner) {
    let Some(shard) = inner.shard(0) else { return };
    inner.directory.add("root".into(), "root".into(), 0);
    let url = format!("{}/clusters/root", inner.url);
    let mut object = logical_cluster(&url, "root", &shard.name, &[], &[]);
    // The root cluster has no path annotation.
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(super::admission::PATH_ANNOTATION);
    }
    shard.add("root", LOGICAL_CLUSTERS, object);
    shard.add("root", "namespaces", namespace("default"));
    inner.reconcile();
}
