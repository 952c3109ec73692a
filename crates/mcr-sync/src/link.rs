//! The link from a target to its source, as labels and annotations of the target.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use mcr::{ClusterName, RequestKey};

use crate::name::{self, SourceName, is_possible, is_valid};

/// The prefix of every label, annotation and finalizer of this crate.
pub(crate) const PREFIX: &str = "sync.mcr.dev/";
/// A label of targets: the name of the sync that made them. The watch of targets selects it.
pub(crate) const SYNC: &str = "sync.mcr.dev/sync";
/// A label of targets: the [hash](SourceName::hash) of their source.
pub(crate) const SOURCE: &str = "sync.mcr.dev/source";
/// An annotation of targets: the cluster of the source.
pub(crate) const CLUSTER: &str = "sync.mcr.dev/source-cluster";
/// An annotation of targets: the namespace of the source. Absent for a cluster-scoped source.
pub(crate) const NAMESPACE: &str = "sync.mcr.dev/source-namespace";
/// An annotation of targets: the name of the source.
pub(crate) const NAME: &str = "sync.mcr.dev/source-name";
/// An annotation of targets: the owner of the sync. Absent if the sync has no owner.
const OWNER: &str = "sync.mcr.dev/owner";
/// The annotations of a link.
const ANNOTATIONS: [&str; 4] = [CLUSTER, NAMESPACE, NAME, OWNER];
/// An annotation of targets: what the sync wrote last, as hashes and field paths.
pub(crate) const WRITTEN: &str = "sync.mcr.dev/written";

type Map = BTreeMap<String, String>;

/// The link of the targets of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// The name of the sync.
    pub(crate) sync: &'a str,
    /// The owner of the sync.
    pub(crate) owner: Option<&'a str>,
    pub(crate) source: SourceName<'a>,
}

impl<'a> Link<'a> {
    pub(crate) fn of(sync: &'a str, owner: Option<&'a str>, source: &'a RequestKey) -> Self {
        let RequestKey { cluster, object } = source;
        let (namespace, name) = (object.namespace.as_deref(), &*object.name);
        Self {
            sync,
            owner,
            source: SourceName {
                cluster,
                namespace,
                name,
            },
        }
    }

    /// The labels and the annotations of the target.
    pub(crate) fn write(&self) -> (Map, Map) {
        let entry = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let labels = [(SYNC, self.sync), (SOURCE, &*self.source.hash())].map(entry);
        let optional = [(NAMESPACE, self.source.namespace), (OWNER, self.owner)];
        let optional = optional
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let annotations = [(CLUSTER, self.source.cluster), (NAME, self.source.name)].into_iter();
        (labels.into(), annotations.chain(optional).map(entry).collect())
    }

    /// Reads the link from the labels and annotations of a target. `None` if they name no source.
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

    /// The first annotation of the link that has a name which no object can have. Whoever may write the target may
    /// have set it.
    pub(crate) fn impossible(&self) -> Option<(&'static str, &'a str)> {
        let namespace = self.source.namespace.filter(|namespace| !is_valid(namespace));
        let name = Some(self.source.name).filter(|name| !is_possible(name));
        namespace.map(|it| (NAMESPACE, it)).or(name.map(|it| (NAME, it)))
    }

    /// The key of the source. `None` if the name of its cluster is not valid.
    pub(crate) fn source_key(&self) -> Option<RequestKey> {
        let cluster = ClusterName::new(self.source.cluster).ok()?;
        let object = name::key(self.source.namespace, self.source.name);
        Some(RequestKey::new(cluster, object))
    }

    /// Whether an object belongs to the source of this link.
    ///
    /// Either the annotations or the labels suffice, so that an object is recognised after somebody has removed the
    /// others. If a part names another sync, another owner or another source, the object belongs to somebody else.
    pub(crate) fn owns(&self, meta: &ObjectMeta) -> bool {
        let optional = [
            (CLUSTER, Some(self.source.cluster)),
            (NAME, Some(self.source.name)),
        ];
        let own = [(NAMESPACE, self.source.namespace), (OWNER, self.owner)]
            .into_iter()
            .chain(optional);
        let (mut annotated, mut annotations_fit) = (true, true);
        for (key, value) in own {
            let found = part(&meta.annotations, key);
            annotated &= found == value;
            annotations_fit &= found.is_none() || found == value;
        }
        let [sync, source] = [SYNC, SOURCE].map(|key| part(&meta.labels, key));
        // Compared first, because the hash costs more than everything else.
        let is_sync = sync == Some(self.sync);
        let is_source = source.is_some_and(|source| source == self.source.hash());
        match (annotated, is_sync && is_source) {
            (true, true) => true,
            (true, false) => (sync.is_none() || is_sync) && (source.is_none() || is_source),
            (false, labelled) => labelled && annotations_fit,
        }
    }
}

/// The label or the annotation of this name.
pub(crate) fn part<'a>(map: &'a Option<Map>, key: &str) -> Option<&'a str> {
    map.as_ref()?.get(key).map(String::as_str)
}

/// Whether an object is the target of some source, even if a part of its link was lost.
pub(crate) fn is_linked(meta: &ObjectMeta) -> bool {
    let has = |map: &Option<Map>, keys: &[&str]| keys.iter().any(|key| part(map, key).is_some());
    has(&meta.labels, &[SYNC, SOURCE]) || has(&meta.annotations, &ANNOTATIONS)
}

/// Labels and annotations that servers and controllers of a cluster set for their own use.
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

/// Whether a label or annotation of a source may be copied to its target. Labels and annotations of kcp,
/// kubectl, controllers and this crate may not, because they describe the source itself.
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

    fn meta((labels, annotations): (Map, Map)) -> ObjectMeta {
        let mut meta = ObjectMeta::default();
        (meta.labels, meta.annotations) = (Some(labels), Some(annotations));
        meta
    }

    fn owns(link: Link<'_>, of: (Map, Map)) -> bool {
        link.owns(&meta(of))
    }

    #[test]
    fn a_link_is_read_as_it_was_written() {
        let mut link = LINK;
        for namespace in [Some("shop"), None] {
            link.source.namespace = namespace;
            let (labels, annotations) = link.write();
            assert_eq!(Link::read(&labels, &annotations), Some(link));
            assert_eq!(
                Link::of("databases", Some("eu"), &link.source_key().unwrap()),
                link
            );
            assert!(owns(link, (labels, annotations)));
        }
        assert!(!is_linked(&ObjectMeta::default()));
    }

    #[test]
    fn every_part_may_be_lost_but_not_all_and_none_may_name_another() {
        let (labels, annotations) = LINK.write();
        let mut lost = LINK.write();
        for key in labels.keys().chain(annotations.keys()) {
            let with = |change: &dyn Fn(&mut Map)| {
                let (mut labels, mut annotations) = LINK.write();
                let of = if labels.contains_key(key) {
                    &mut labels
                } else {
                    &mut annotations
                };
                change(of);
                (labels, annotations)
            };
            assert!(owns(LINK, with(&|map| drop(map.remove(key)))), "{key}");
            assert!(
                !owns(LINK, with(&|map| drop(map.insert(key.clone(), "other".into())))),
                "{key}"
            );
            assert!(is_linked(&meta(lost.clone())), "{key}");
            lost.0.remove(key);
            lost.1.remove(key);
        }
        assert!(owns(LINK, (labels, Map::new())));
        assert!(owns(LINK, (Map::new(), annotations)));
        assert!(!owns(LINK, lost));
    }

    #[test]
    fn a_target_of_another_sync_owner_or_source_belongs_to_somebody_else() {
        let others: [fn(&mut Link<'_>); 5] = [
            |link| link.sync = "other",
            |link| link.owner = Some("us"),
            |link| link.source.cluster = "team-b",
            |link| link.source.namespace = None,
            |link| link.source.name = "db2",
        ];
        for change in others {
            let mut other = LINK;
            change(&mut other);
            assert!(!owns(LINK, other.write()), "{other:?}");
        }
        let nobody = Link { owner: None, ..LINK };
        assert!(owns(LINK, nobody.write()), "made before it had an owner");
        assert!(!owns(nobody, LINK.write()));
    }

    #[test]
    fn the_marks_of_others_are_not_copied() {
        let own = "kcp.io/cluster claimed.internal.apis.kcp.io/x kubectl.kubernetes.io/y deployment.kubernetes.io/revision \
            pv.kubernetes.io/bind-completed sync.mcr.dev/sync";
        assert!(own.split_whitespace().all(|key| !is_copied(key)));
        let others = "team app.kubernetes.io/name pv.kubernetes.io/provisioned-by notkcp.io/x kcp.io example.io/kcp.io";
        assert!(others.split_whitespace().all(is_copied));
    }
}
