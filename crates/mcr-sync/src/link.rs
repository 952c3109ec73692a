//! The link from a target to its source, as labels and annotations of the target.

use std::collections::BTreeMap;

use mcr::{ClusterName, ObjectKey, RequestKey};

use crate::name::{SourceName, is_possible, is_valid};

/// The prefix of every label, annotation and finalizer of this crate.
pub(crate) const PREFIX: &str = "sync.mcr.dev/";
/// A label of targets: the name of the sync that made them. Targets are watched by it.
pub(crate) const SYNC: &str = "sync.mcr.dev/sync";
/// A label of targets: the [hash](SourceName::hash) of their source.
pub(crate) const SOURCE: &str = "sync.mcr.dev/source";
/// An annotation of targets: the cluster of the source.
pub(crate) const CLUSTER: &str = "sync.mcr.dev/source-cluster";
/// An annotation of targets: the namespace of the source. Absent for a cluster-scoped source.
pub(crate) const NAMESPACE: &str = "sync.mcr.dev/source-namespace";
/// An annotation of targets: the name of the source.
pub(crate) const NAME: &str = "sync.mcr.dev/source-name";
/// An annotation of targets: the installation that the sync belongs to. Absent if it has no name.
const OWNER: &str = "sync.mcr.dev/owner";
/// The annotations of a link.
const ANNOTATIONS: [&str; 4] = [CLUSTER, NAMESPACE, NAME, OWNER];
/// An annotation of targets: the field paths that the sync set.
pub(crate) const FIELDS: &str = "sync.mcr.dev/fields";
/// An annotation of targets that are written with server-side apply: hashes of the desired state.
pub(crate) const APPLIED: &str = "sync.mcr.dev/applied";

type Map = BTreeMap<String, String>;

/// The link of one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// The name of the sync.
    pub(crate) sync: &'a str,
    /// The installation that the sync belongs to.
    pub(crate) owner: Option<&'a str>,
    /// The source.
    pub(crate) source: SourceName<'a>,
}

/// Whether a target belongs to a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The sync made this object for this source.
    Ours,
    /// The sync made this object for this source, and somebody changed a part of the link. Writing the link mends it.
    Damaged,
    /// Another source's target, or an object that no sync made.
    Foreign,
}

impl<'a> Link<'a> {
    /// The link of the targets of a source.
    pub(crate) fn of(sync: &'a str, owner: Option<&'a str>, source: &'a RequestKey) -> Self {
        Self {
            sync,
            owner,
            source: SourceName {
                cluster: &source.cluster,
                namespace: source.object.namespace.as_deref(),
                name: &source.object.name,
            },
        }
    }

    /// The labels and the annotations of the target.
    pub(crate) fn write(&self) -> (Map, Map) {
        let entry = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let labels = [(SYNC, self.sync), (SOURCE, &*self.source.hash())].map(entry);
        let mut annotations: Map = [(CLUSTER, self.source.cluster), (NAME, self.source.name)]
            .map(entry)
            .into();
        let others = [
            self.source.namespace.map(|it| (NAMESPACE, it)),
            self.owner.map(|it| (OWNER, it)),
        ];
        annotations.extend(others.into_iter().flatten().map(entry));
        (labels.into(), annotations)
    }

    /// Reads the source from the labels and annotations of a target, without a list. `None` if they name none.
    pub(crate) fn read(labels: &'a Map, annotations: &'a Map) -> Option<Self> {
        Some(Self {
            sync: labels.get(SYNC)?,
            owner: annotations.get(OWNER).map(String::as_str),
            source: SourceName {
                cluster: annotations.get(CLUSTER)?,
                namespace: annotations.get(NAMESPACE).map(String::as_str),
                name: annotations.get(NAME)?,
            },
        })
    }

    /// An annotation whose name no object can have, if there is one: whoever may write targets may write any.
    pub(crate) fn impossible(&self) -> Option<(&'static str, &'a str)> {
        let namespace = self.source.namespace.filter(|namespace| !is_valid(namespace));
        let name = Some(self.source.name).filter(|name| !is_possible(name));
        namespace.map(|it| (NAMESPACE, it)).or(name.map(|it| (NAME, it)))
    }

    /// The key of the source. `None` if the name of its cluster is not valid.
    pub(crate) fn source_key(&self) -> Option<RequestKey> {
        let SourceName {
            cluster,
            namespace,
            name,
        } = self.source;
        let object = match namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster_scoped(name),
        };
        Some(RequestKey::new(ClusterName::new(cluster).ok()?, object))
    }

    /// Whether the object with these labels and annotations belongs to the source of this link.
    ///
    /// Either the annotations or the labels suffice, so that an object is found again after somebody removed the others. An
    /// object whose remaining parts name another sync, another owner or another source is foreign.
    pub(crate) fn owns(&self, labels: &Map, annotations: &Map) -> Ownership {
        let (own_labels, own_annotations) = self.write();
        let state = |own: &Map, found: &Map, keys: &[&str]| {
            let same = |key: &&str| own.get(*key) == found.get(*key);
            let missing = |key: &&str| !found.contains_key(*key);
            (
                keys.iter().all(same),
                keys.iter().all(|key| same(key) || missing(key)),
            )
        };
        let (labelled, labels_fit) = state(&own_labels, labels, &[SYNC, SOURCE]);
        let (annotated, annotations_fit) = state(&own_annotations, annotations, &ANNOTATIONS);
        match (labelled, annotated) {
            (true, true) => Ownership::Ours,
            (true, false) if annotations_fit => Ownership::Damaged,
            (false, true) if labels_fit => Ownership::Damaged,
            _ => Ownership::Foreign,
        }
    }
}

/// Whether an object is the target of some source, or was and lost a part of its link.
pub(crate) fn is_linked(labels: &Map, annotations: &Map) -> bool {
    let has = |map: &Map, keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    has(labels, &[SYNC, SOURCE]) || has(annotations, &ANNOTATIONS)
}

/// Labels and annotations that servers and controllers of a cluster set for themselves.
const OF_CONTROLLERS: [&str; 10] = [
    "batch.kubernetes.io/job-tracking",
    "control-plane.alpha.kubernetes.io/leader",
    "deprecated.daemonset.template.generation",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubernetes.io/metadata.name",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
];

/// Whether a label or annotation of a source may be copied to its target. Those of kcp, of kubectl, of controllers and of this crate
/// may not: they describe the source.
pub(crate) fn is_copied(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let of = |domain: &str| {
        prefix
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let mut domains = [
        "kcp.io",
        "kcp.dev",
        "kubectl.kubernetes.io",
        "deployment.kubernetes.io",
        "sync.mcr.dev",
    ]
    .into_iter();
    !domains.any(of) && !OF_CONTROLLERS.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link<'static> = Link {
        sync: "databases",
        owner: Some("eu"),
        source: SourceName {
            cluster: "team-a",
            namespace: Some("shop"),
            name: "db",
        },
    };

    #[test]
    fn a_link_is_read_as_it_was_written() {
        for namespace in [Some("shop"), None] {
            let link = Link {
                source: SourceName {
                    namespace,
                    ..LINK.source
                },
                ..LINK
            };
            let (labels, annotations) = link.write();
            assert_eq!(Link::read(&labels, &annotations), Some(link));
            let key = link.source_key().unwrap();
            assert_eq!(Link::of("databases", Some("eu"), &key), link);
            assert_eq!(link.owns(&labels, &annotations), Ownership::Ours);
            assert!(labels.values().all(|value| value.len() <= 63));
        }
        assert_eq!(Link::read(&Map::new(), &Map::new()), None);
        assert!(!is_linked(&Map::new(), &Map::new()));
    }

    #[test]
    fn every_part_may_be_lost_but_not_all_and_none_may_name_another() {
        let (labels, annotations) = LINK.write();
        for key in labels.keys().chain(annotations.keys()) {
            let without = |map: &Map| -> Map {
                let kept = map.iter().filter(|(k, _)| *k != key);
                kept.map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            assert_eq!(
                LINK.owns(&without(&labels), &without(&annotations)),
                Ownership::Damaged,
                "{key}"
            );
            let only = |map: &Map| -> Map { map.clone().into_iter().filter(|(k, _)| k == key).collect() };
            assert!(is_linked(&only(&labels), &only(&annotations)), "{key}");
            let other = |map: &Map| -> Map {
                let mut map = map.clone();
                if let Some(value) = map.get_mut(key) {
                    *value = "other".into();
                }
                map
            };
            assert_eq!(
                LINK.owns(&other(&labels), &other(&annotations)),
                Ownership::Foreign,
                "{key}"
            );
        }
        assert_eq!(LINK.owns(&labels, &Map::new()), Ownership::Damaged);
        assert_eq!(LINK.owns(&Map::new(), &annotations), Ownership::Damaged);
        assert_eq!(LINK.owns(&Map::new(), &Map::new()), Ownership::Foreign);
    }

    #[test]
    fn a_target_of_another_sync_or_source_is_foreign() {
        let of = |link: Link<'_>| {
            let (labels, annotations) = link.write();
            LINK.owns(&labels, &annotations)
        };
        for (sync, owner) in [("other", Some("eu")), ("databases", Some("us"))] {
            assert_eq!(of(Link { sync, owner, ..LINK }), Ownership::Foreign);
        }
        assert_eq!(
            of(Link { owner: None, ..LINK }),
            Ownership::Damaged,
            "made before it had an owner"
        );
        let nobody = Link { owner: None, ..LINK };
        let (labels, annotations) = LINK.write();
        assert_eq!(nobody.owns(&labels, &annotations), Ownership::Foreign);
        for source in [
            SourceName {
                cluster: "team-b",
                ..LINK.source
            },
            SourceName {
                namespace: None,
                ..LINK.source
            },
            SourceName {
                name: "db2",
                ..LINK.source
            },
        ] {
            assert_eq!(of(Link { source, ..LINK }), Ownership::Foreign);
        }
    }

    #[test]
    fn the_marks_of_others_are_not_copied() {
        for key in [
            "kcp.io/cluster",
            "claimed.internal.apis.kcp.io/x",
            "kubectl.kubernetes.io/y",
            "deployment.kubernetes.io/revision",
            "pv.kubernetes.io/bind-completed",
            SYNC,
        ] {
            assert!(!is_copied(key), "{key}");
        }
        for key in [
            "team",
            "app.kubernetes.io/name",
            "pv.kubernetes.io/provisioned-by",
            "notkcp.io/x",
            "kcp.io",
            "example.io/kcp.io",
        ] {
            assert!(is_copied(key), "{key}");
        }
    }
}
