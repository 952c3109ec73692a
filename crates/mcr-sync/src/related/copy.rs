//! One copy: its link, its name and its desired state.

use kube::core::ObjectMeta;
use mcr::{ClusterName, RequestKey};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    link::{Link, SYNC, part},
    name::{self, hex, readable_with},
};

/// A label of copies: the id of the relation that made them. The watch of copies selects it.
pub(crate) const RELATED: &str = "sync.mcr.dev/related";
/// An annotation of copies: the relation, and the cluster, namespace and name of the origin.
const ORIGIN: &str = "sync.mcr.dev/origin";

/// Whether the object is a copy of a related object, and so not a target. The label or the annotation alone suffices.
pub(crate) fn is_copy(meta: &ObjectMeta) -> bool {
    part(&meta.labels, RELATED).is_some() || part(&meta.annotations, ORIGIN).is_some()
}

/// Whether a sync of this name made the object. Such an object is never an origin. Otherwise copies would be copied
/// again and again.
pub(crate) fn is_made_by(sync: &str, meta: &ObjectMeta) -> bool {
    part(&meta.labels, SYNC) == Some(sync)
}

/// The label selector of copies: all copies of a relation, or only those of the source in `link`.
pub(crate) fn selector(sync: &str, id: &str, link: Option<&Link<'_>>) -> String {
    let all = format!("{SYNC}={sync},{RELATED}={id}");
    match link {
        Some(link) => format!("{all},{}={}", crate::link::SOURCE, link.source.hash()),
        None => all,
    }
}

fn origin(meta: &ObjectMeta) -> Option<(String, RequestKey)> {
    let text = part(&meta.annotations, ORIGIN)?;
    let (id, cluster, namespace, name): (String, String, Option<String>, String) =
        serde_json::from_str(text).ok()?;
    let key = RequestKey::new(ClusterName::new(cluster).ok()?, name::key(namespace, name));
    Some((id, key))
}

/// The cluster of the origin. `None` if the annotation is damaged.
pub(crate) fn origin_cluster(meta: &ObjectMeta) -> Option<ClusterName> {
    origin(meta).map(|(_, key)| key.cluster)
}

/// Whether the object is a copy that this relation made for the source of the link.
pub(crate) fn is_ours(meta: &ObjectMeta, id: &str, link: &Link<'_>) -> bool {
    let is_of_relation = match part(&meta.labels, RELATED) {
        Some(label) => label == id,
        None => origin(meta).is_some_and(|(of, _)| of == id),
    };
    is_of_relation && link.owns(meta)
}

/// The label and the annotation that mark a copy.
pub(crate) fn marks(id: &str, origin: &RequestKey) -> [Option<(&'static str, String)>; 2] {
    let (cluster, object) = (&origin.cluster, &origin.object);
    let text = json!([id, &**cluster, object.namespace, object.name]).to_string();
    [Some((RELATED, id.to_owned())), Some((ORIGIN, text))]
}

/// The default name of a copy: unique among all copies of all syncs.
pub(crate) fn default_name(id: &str, origin: &RequestKey, link: &Link<'_>) -> String {
    let mut hash = Sha256::new();
    let (source, object) = (link.source.hash(), &origin.object);
    let namespace = object.namespace.as_deref().unwrap_or_default();
    for part in [link.sync, id, &source, &*origin.cluster, namespace, &object.name] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    readable_with(&object.name, &hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::SourceName;

    #[test]
    fn names_of_copies_differ_by_sync_relation_source_and_origin() {
        let name = |[sync, id, source, cluster, namespace, origin]: [&str; 6]| {
            let (owner, namespace) = (None, Some(namespace));
            let source = SourceName {
                cluster: "team-a",
                namespace: Some("shop"),
                name: source,
            };
            let origin = RequestKey::new(ClusterName::new(cluster).unwrap(), name::key(namespace, origin));
            let name = default_name(id, &origin, &Link { sync, owner, source });
            assert!(name.len() <= 63, "{name}");
            name
        };
        let parts = ["dbs", "connection", "db", "berlin", "dbs", "secret"];
        let first = name(parts);
        assert!(first.starts_with("secret-"), "{first}");
        for at in 0..parts.len() {
            let mut other = parts;
            other[at] = "other";
            assert_ne!(name(other), first);
        }
        assert_ne!(
            name(["dbs", "connection", "db", "berlin", "db", "ssecret"]),
            first
        );
        name(["dbs", "x", "db", "berlin", "dbs", &"n".repeat(253)]);
    }
}
