//! An index in memory that reconciles and watches fill: which sources an object of a related kind concerns.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ObjectMeta;
use mcr::{ClusterName, RequestKey};
use parking_lot::{Mutex, MutexGuard};

use crate::{link::part, name};

/// Which objects one source selects in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selected {
    Names(BTreeSet<String>),
    Labels(BTreeMap<String, String>),
    /// All objects. Then the function of the user chooses.
    All,
}

impl Selected {
    pub(crate) fn matches(&self, meta: &ObjectMeta) -> bool {
        match self {
            Self::Names(names) => meta.name.as_ref().is_some_and(|name| names.contains(name)),
            // An empty selector would select everything, which nobody intends.
            Self::Labels(wanted) => {
                let mut all = wanted.iter();
                !wanted.is_empty() && all.all(|(key, value)| part(&meta.labels, key) == Some(value))
            }
            Self::All => true,
        }
    }
}

/// A namespace of a cluster. `None` stands for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub(crate) cluster: ClusterName,
    pub(crate) namespace: Option<String>,
}

impl Scope {
    /// The key of an object of this name in the scope.
    pub(crate) fn key(&self, name: &str) -> RequestKey {
        RequestKey::new(self.cluster.clone(), name::key(self.namespace.as_deref(), name))
    }
}

type Interests = BTreeMap<Scope, BTreeSet<Selected>>;

#[derive(Default)]
struct Inner {
    /// What each source selects, by namespace.
    interests: BTreeMap<RequestKey, Interests>,
    /// The sources that select something in a namespace.
    sources: BTreeMap<Scope, BTreeSet<RequestKey>>,
    /// Where copies of each source were observed. Some may be gone.
    copies: BTreeMap<RequestKey, BTreeSet<RequestKey>>,
}

/// The index of one related kind.
///
/// A reconcile notes what it is going to read before it reads. So a change of an object is either in what the
/// reconcile reads, or the event of the change finds the source here.
#[derive(Default)]
pub(crate) struct Index(Mutex<Inner>);

impl Index {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Sets what a source selects. The entry stays until the cluster of the source leaves.
    pub(crate) fn note(&self, source: &RequestKey, interests: Interests) {
        let mut inner = self.inner();
        let former = inner.interests.remove(source).unwrap_or_default();
        for scope in former.keys().filter(|scope| !interests.contains_key(scope)) {
            if let Some(sources) = inner.sources.get_mut(scope) {
                sources.remove(source);
                if sources.is_empty() {
                    inner.sources.remove(scope);
                }
            }
        }
        for scope in interests.keys() {
            let sources = inner.sources.entry(scope.clone()).or_default();
            sources.insert(source.clone());
        }
        if !interests.is_empty() {
            inner.interests.insert(source.clone(), interests);
        }
    }

    /// The sources that select this object.
    pub(crate) fn concerned(&self, cluster: &ClusterName, meta: &ObjectMeta) -> Vec<RequestKey> {
        let scope = Scope {
            cluster: cluster.clone(),
            namespace: meta.namespace.clone(),
        };
        let inner = self.inner();
        let sources = inner.sources.get(&scope).into_iter().flatten();
        let is_selected = |source: &&RequestKey| {
            let interests = inner.interests.get(*source);
            let mut selected = interests
                .and_then(|interests| interests.get(&scope))
                .into_iter()
                .flatten();
            selected.any(|selected| selected.matches(meta))
        };
        sources.filter(is_selected).cloned().collect()
    }

    /// Notes that a copy was observed or deleted.
    pub(crate) fn note_copy(&self, source: &RequestKey, copy: RequestKey, deleted: bool) {
        let mut inner = self.inner();
        let copies = inner.copies.entry(source.clone()).or_default();
        if deleted {
            copies.remove(&copy);
        } else {
            copies.insert(copy);
        }
        if copies.is_empty() {
            inner.copies.remove(source);
        }
    }

    /// Where copies of the source may be.
    pub(crate) fn copies(&self, source: &RequestKey) -> Vec<RequestKey> {
        let inner = self.inner();
        inner.copies.get(source).into_iter().flatten().cloned().collect()
    }

    /// Forgets the sources and the copies in a cluster that has left. They are observed again when the cluster is
    /// back.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        let mut of_cluster = Vec::from_iter(self.inner().interests.keys().cloned());
        of_cluster.retain(|source| source.cluster == *cluster);
        for source in of_cluster {
            self.note(&source, BTreeMap::new());
        }
        self.inner().copies.retain(|_, copies| {
            copies.retain(|copy| copy.cluster != *cluster);
            !copies.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: &str, name: &str) -> RequestKey {
        RequestKey::new(ClusterName::new(cluster).unwrap(), name::key(Some("dbs"), name))
    }

    fn interests(selected: Selected) -> Interests {
        let (cluster, namespace) = (ClusterName::new("berlin").unwrap(), Some("dbs".into()));
        let scope = Scope { cluster, namespace };
        BTreeMap::from([(scope, BTreeSet::from([selected]))])
    }

    #[test]
    fn an_object_concerns_the_sources_that_select_it_and_no_others() {
        let (index, sources) = (Index::default(), ["a", "b", "c"].map(|cluster| key(cluster, "x")));
        let labels = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()));
            labels.collect::<BTreeMap<_, _>>()
        };
        let note = |at: usize, selected| index.note(&sources[at], interests(selected));
        let concerned = |cluster: &str, name: &str, marks: &[(&str, &str)]| {
            let meta = ObjectMeta {
                name: Some(name.into()),
                namespace: Some("dbs".into()),
                labels: Some(labels(marks)),
                ..ObjectMeta::default()
            };
            let all = index.concerned(&ClusterName::new(cluster).unwrap(), &meta);
            all.iter().map(|source| &*source.cluster).collect::<String>()
        };
        note(0, Selected::Names(BTreeSet::from(["secret".into()])));
        note(1, Selected::Labels(labels(&[("db", "y")])));
        note(2, Selected::Labels(BTreeMap::new()));
        assert_eq!(concerned("berlin", "secret", &[]), "a");
        assert_eq!(concerned("berlin", "other", &[("db", "y"), ("z", "z")]), "b");
        assert_eq!(concerned("berlin", "other", &[("db", "z")]), "");
        note(2, Selected::All);
        assert_eq!(concerned("berlin", "secret", &[]), "ac");
        assert_eq!(concerned("lyon", "secret", &[]), "");
        // Another reference replaces the former one.
        note(0, Selected::Names(BTreeSet::from(["next".into()])));
        assert_eq!(concerned("berlin", "secret", &[]), "c");
    }

    #[test]
    fn entries_go_with_the_source_and_with_its_cluster() {
        let (index, sources) = (Index::default(), ["a", "b"].map(|cluster| key(cluster, "x")));
        for source in &sources {
            index.note(source, interests(Selected::All));
            index.note_copy(source, key("berlin", "copy"), false);
            index.note_copy(source, key("a", "copy"), false);
        }
        index.note(&sources[1], BTreeMap::new());
        index.forget_cluster(&ClusterName::new("a").unwrap());
        assert_eq!(index.copies(&sources[1]), [key("berlin", "copy")]);
        for source in &sources {
            index.note_copy(source, key("berlin", "copy"), true);
        }
        let inner = index.inner();
        assert!(inner.interests.is_empty() && inner.sources.is_empty() && inner.copies.is_empty());
    }
}
