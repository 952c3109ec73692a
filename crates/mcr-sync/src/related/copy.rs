//! One copy: its link, its name and its desired state.

use kube::core::ObjectMeta;
use mcr::{ClusterName, ObjectKey, RequestKey};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    link::{Link, SYNC},
    name::{hex, readable_with},
};

/// A label of copies: the name of the relation that made them. Copies are watched by it.
pub(crate) const RELATED: &str = "sync.mcr.dev/related";
/// An annotation of copies: the relation, and the cluster, namespace and name of the origin.
const ORIGIN: &str = "sync.mcr.dev/origin";

/// Whether the object is a copy of a related object, and so no target. A part of the marks suffices.
pub(crate) fn is_copy(meta: &ObjectMeta) -> bool {
    let has = |map: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
        map.as_ref().is_some_and(|map| map.contains_key(key))
    };
    has(&meta.labels, RELATED) || has(&meta.annotations, ORIGIN)
}

/// Whether a sync of this name made the object. Such an object is never an origin, or it would be copied again and again.
pub(crate) fn is_made_by(sync: &str, meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels.is_some_and(|labels| labels.get(SYNC).is_some_and(|by| by == sync))
}

/// The selector of copies. With a source, of those that belong to it.
pub(crate) fn selector(sync: &str, id: &str, link: Option<&Link<'_>>) -> String {
    let all = format!("{SYNC}={sync},{RELATED}={id}");
    match link {
        Some(link) => format!("{all},{}={}", crate::link::SOURCE, link.source.hash()),
        None => all,
    }
}

fn origin(meta: &ObjectMeta) -> Option<(String, RequestKey)> {
    let text = meta.annotations.as_ref()?.get(ORIGIN)?;
    let (id, cluster, namespace, name): (String, String, Option<String>, String) =
        serde_json::from_str(text).ok()?;
    let object = match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster_scoped(name),
    };
    Some((id, RequestKey::new(ClusterName::new(cluster).ok()?, object)))
}

/// The cluster of the origin. `None` if somebody damaged the annotation.
pub(crate) fn origin_cluster(meta: &ObjectMeta) -> Option<ClusterName> {
    origin(meta).map(|(_, key)| key.cluster)
}

/// Whether the object is a copy that this relation made for the source of the link.
pub(crate) fn is_ours(meta: &ObjectMeta, id: &str, link: &Link<'_>) -> bool {
    let is_of_relation = match meta.labels.as_ref().and_then(|labels| labels.get(RELATED)) {
        Some(label) => label == id,
        None => origin(meta).is_some_and(|(of, _)| of == id),
    };
    is_of_relation && link.owns(meta)
}

/// The label and the annotation of a copy.
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
    use crate::{desired::Desired, name::SourceName};

    const LINK: Link<'static> = Link {
        sync: "dbs",
        owner: None,
        source: SourceName {
            cluster: "team-a",
            namespace: Some("shop"),
            name: "db",
        },
    };

    fn key(cluster: &str, namespace: &str, name: &str) -> RequestKey {
        RequestKey::new(
            ClusterName::new(cluster).unwrap(),
            ObjectKey::namespaced(namespace, name),
        )
    }

    fn made(marks: [Option<(&str, String)>; 2]) -> ObjectMeta {
        let desired = Desired::new(json!({}), &LINK, marks, None).unwrap();
        serde_json::from_value(desired.object["metadata"].clone()).unwrap()
    }

    #[test]
    fn a_copy_belongs_to_its_relation_and_to_its_source() {
        let of = |id: &str| made(marks(id, &key("berlin", "dbs", "secret")));
        let ours = |meta: &ObjectMeta| is_ours(meta, "connection", &LINK);
        assert!(ours(&of("connection")) && !ours(&of("other")));
        let (labels, annotations) = (None, None);
        assert!(
            ours(&ObjectMeta {
                labels,
                ..of("connection")
            }),
            "the annotations suffice"
        );
        assert!(
            ours(&ObjectMeta {
                annotations,
                ..of("connection")
            }),
            "the labels suffice"
        );
        let target = made([None, None]);
        assert!(!ours(&target), "a target of the same source is no copy");
        assert!(is_copy(&of("x")) && !is_copy(&target));
        assert!(is_made_by("dbs", &target) && !is_made_by("other", &target));
        assert_eq!(origin_cluster(&of("x")).as_deref(), Some("berlin"));
    }

    #[test]
    fn names_of_copies_differ_by_relation_source_and_origin() {
        let name = default_name("connection", &key("berlin", "dbs", "secret"), &LINK);
        assert!(name.starts_with("secret-") && name.len() <= 63, "{name}");
        let source = SourceName {
            name: "db2",
            ..LINK.source
        };
        for other in [
            default_name("connection2", &key("berlin", "dbs", "secret"), &LINK),
            default_name("connection", &key("lyon", "dbs", "secret"), &LINK),
            default_name("connection", &key("berlin", "db", "ssecret"), &LINK),
            default_name("connection", &key("berlin", "dbs", "secret2"), &LINK),
            default_name(
                "connection",
                &key("berlin", "dbs", "secret"),
                &Link { sync: "dbs2", ..LINK },
            ),
            default_name(
                "connection",
                &key("berlin", "dbs", "secret"),
                &Link { source, ..LINK },
            ),
        ] {
            assert_ne!(other, name);
        }
        let long = default_name("x", &key("berlin", "dbs", &"n".repeat(253)), &LINK);
        assert!(long.len() <= 63, "{long}");
    }
}
