//! Which sources an object of a related kind concerns: an index in memory that reconciles and watches fill.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ObjectMeta;
use mcr::{ClusterName, ObjectKey, RequestKey};
use parking_lot::{Mutex, MutexGuard};

/// The objects that one source takes from a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selected {
    Names(BTreeSet<String>),
    Labels(BTreeMap<String, String>),
    /// All of them: a function chooses.
    All,
}

impl Selected {
    pub(crate) fn matches(&self, meta: &ObjectMeta) -> bool {
        match self {
            Self::Names(names) => meta.name.as_ref().is_some_and(|name| names.contains(name)),
            // An empty selector would select everything, which nobody means.
            Self::Labels(wanted) => {
                let labels = meta.labels.as_ref();
                let has = |(key, value): (&String, &String)| {
                    labels.is_some_and(|labels| labels.get(key) == Some(value))
                };
                !wanted.is_empty() && wanted.iter().all(has)
            }
            Self::All => true,
        }
    }
}

/// A namespace of a cluster. Without a name: the objects that have no namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub(crate) cluster: ClusterName,
    pub(crate) namespace: Option<String>,
}

impl Scope {
    /// The key of an object of this name.
    pub(crate) fn key(&self, name: &str) -> RequestKey {
        let object = match &self.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace.as_str(), name),
            None => ObjectKey::cluster_scoped(name),
        };
        RequestKey::new(self.cluster.clone(), object)
    }
}

type Interests = BTreeMap<Scope, BTreeSet<Selected>>;

#[derive(Default)]
struct Inner {
    /// Per source: what it takes from where.
    interests: BTreeMap<RequestKey, Interests>,
    /// Per namespace: the sources that take something from it.
    sources: BTreeMap<Scope, BTreeSet<RequestKey>>,
    /// Per source: where copies of it were seen. Some may be gone.
    copies: BTreeMap<RequestKey, BTreeSet<RequestKey>>,
}

/// The index of one related kind.
///
/// A reconcile notes what it is going to read before it reads it. So a change of an object is either in what the reconcile
/// reads, or its event finds the note.
#[derive(Default)]
pub(crate) struct Index(Mutex<Inner>);

impl Index {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Sets what a source takes. Nothing removes its entry.
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
            inner
                .sources
                .entry(scope.clone())
                .or_default()
                .insert(source.clone());
        }
        if !interests.is_empty() {
            inner.interests.insert(source.clone(), interests);
        }
    }

    /// The sources that take this object.
    pub(crate) fn concerned(&self, cluster: &ClusterName, meta: &ObjectMeta) -> Vec<RequestKey> {
        let scope = Scope {
            cluster: cluster.clone(),
            namespace: meta.namespace.clone(),
        };
        let inner = self.inner();
        let sources = inner.sources.get(&scope).into_iter().flatten();
        let takes = |source: &&RequestKey| {
            let interests = inner.interests.get(*source);
            let selected = interests.and_then(|interests| interests.get(&scope));
            selected.is_some_and(|selected| selected.iter().any(|selected| selected.matches(meta)))
        };
        sources.filter(takes).cloned().collect()
    }

    /// Notes that a copy was seen or is gone.
    pub(crate) fn saw_copy(&self, source: &RequestKey, copy: RequestKey, deleted: bool) {
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

    /// Forgets the sources of a cluster that has left, and the copies in it. They are seen again when it is back.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        let of_cluster: Vec<RequestKey> = {
            let inner = self.inner();
            inner
                .interests
                .keys()
                .filter(|key| key.cluster == *cluster)
                .cloned()
                .collect()
        };
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

    fn source(cluster: &str, name: &str) -> RequestKey {
        RequestKey::new(
            ClusterName::new(cluster).unwrap(),
            ObjectKey::namespaced("default", name),
        )
    }

    fn meta(name: &str, labels: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some("dbs".into()),
            labels: Some(
                labels
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        }
    }

    fn interests(selected: Selected) -> Interests {
        let scope = Scope {
            cluster: ClusterName::new("berlin").unwrap(),
            namespace: Some("dbs".into()),
        };
        BTreeMap::from([(scope, BTreeSet::from([selected]))])
    }

    #[test]
    fn an_object_concerns_the_sources_that_take_it_and_no_others() {
        let (index, berlin) = (Index::default(), ClusterName::new("berlin").unwrap());
        let (a, b, c) = (source("a", "x"), source("a", "y"), source("b", "x"));
        index.note(&a, interests(Selected::Names(BTreeSet::from(["secret".into()]))));
        let labels = BTreeMap::from([("db".to_owned(), "y".to_owned())]);
        index.note(&b, interests(Selected::Labels(labels)));
        index.note(&c, interests(Selected::Labels(BTreeMap::new())));
        let concerned = |meta: &ObjectMeta| index.concerned(&berlin, meta);
        assert_eq!(concerned(&meta("secret", &[])), std::slice::from_ref(&a));
        assert_eq!(
            concerned(&meta("other", &[("db", "y"), ("z", "z")])),
            std::slice::from_ref(&b)
        );
        assert!(concerned(&meta("other", &[("db", "z")])).is_empty());
        index.note(&c, interests(Selected::All));
        assert_eq!(concerned(&meta("secret", &[])), [a.clone(), c.clone()]);
        assert!(
            index
                .concerned(&ClusterName::new("lyon").unwrap(), &meta("secret", &[]))
                .is_empty()
        );
        // Another reference replaces the former one.
        index.note(&a, interests(Selected::Names(BTreeSet::from(["next".into()]))));
        assert_eq!(concerned(&meta("secret", &[])), std::slice::from_ref(&c));
    }

    #[test]
    fn entries_go_with_the_source_and_with_its_cluster() {
        let index = Index::default();
        let (a, b) = (source("a", "x"), source("b", "x"));
        for source in [&a, &b] {
            index.note(source, interests(Selected::All));
            index.saw_copy(source, self::source("berlin", "copy"), false);
            index.saw_copy(source, self::source("a", "copy"), false);
        }
        index.note(&b, BTreeMap::new());
        index.forget_cluster(&ClusterName::new("a").unwrap());
        assert_eq!(index.copies(&b), [source("berlin", "copy")]);
        for source in [&a, &b] {
            index.saw_copy(source, self::source("berlin", "copy"), true);
        }
        let inner = index.inner();
        assert!(inner.interests.is_empty() && inner.sources.is_empty() && inner.copies.is_empty());
    }
}
