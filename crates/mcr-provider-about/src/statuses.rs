//! What is shown of all clusters, and which names are of one cluster. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::{Arc, Mutex},
};

use mcr_core::{ClusterName, internal::lock};

use crate::known::Known;

/// What is known of one cluster. [`AboutHandle::statuses`](crate::AboutHandle::statuses) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The id of the cluster: its property [`CLUSTER_ID`](crate::CLUSTER_ID).
    pub cluster_id: Option<Arc<str>>,
    /// The ClusterSet of the cluster: its property [`CLUSTER_SET`](crate::CLUSTER_SET).
    pub cluster_set: Option<Arc<str>>,
    /// Whether the cluster has answered a probe. An answer that the cluster has no About API counts, and one that the rights are
    /// missing.
    pub answered: bool,
    /// Why the last probe failed. `None` if it was answered, or if no probe has ended since the access changed.
    pub last_error: Option<Arc<str>>,
}

/// Several names with the same cluster id in the same ClusterSet. [`AboutHandle::duplicates`](crate::AboutHandle::duplicates)
/// returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The cluster id that they share.
    pub cluster_id: Arc<str>,
    /// The ClusterSet that they share. `None` if none of them says that it is in one.
    pub cluster_set: Option<Arc<str>>,
    /// The names, sorted.
    pub clusters: Vec<ClusterName>,
}

/// What one discovery leaves to the next, and what is shown of the clusters.
// No user code runs under the locks, so a poisoned one still holds a consistent state.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) statuses: Mutex<Statuses>,
    memory: Mutex<BTreeMap<ClusterName, Known>>,
}

impl Shared {
    pub(crate) fn take_memory(&self) -> BTreeMap<ClusterName, Known> {
        take(&mut lock(&self.memory))
    }

    pub(crate) fn leave_memory(&self, memory: BTreeMap<ClusterName, Known>) {
        *lock(&self.memory) = memory;
    }

    /// The names of all clusters that are shown.
    pub(crate) fn names(&self) -> Vec<ClusterName> {
        lock(&self.statuses).by_name.keys().cloned().collect()
    }
}

/// An id is unique in its ClusterSet only.
type Key = (Option<Arc<str>>, Arc<str>);

#[derive(Debug, Default)]
pub(crate) struct Statuses {
    by_name: BTreeMap<ClusterName, MemberStatus>,
    by_id: BTreeMap<Key, BTreeSet<ClusterName>>,
}

impl MemberStatus {
    fn key(&self) -> Option<Key> {
        Some((self.cluster_set.clone(), self.cluster_id.clone()?))
    }
}

impl Statuses {
    /// Replaces the status of a cluster, or removes it. Returns the names that are now known to be of the same cluster as this one, if
    /// that is news.
    pub(crate) fn set(&mut self, name: &ClusterName, status: Option<MemberStatus>) -> Option<Duplicate> {
        let was = self.by_name.remove(name).and_then(|status| status.key());
        let is = status.as_ref().and_then(MemberStatus::key);
        self.by_name.extend(status.map(|status| (name.clone(), status)));
        if was == is {
            return None;
        }
        if let Some(was) = was
            && let Some(names) = self.by_id.get_mut(&was)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_id.remove(&was);
            }
        }
        let is = is?;
        let names = self.by_id.entry(is.clone()).or_default();
        names.insert(name.clone());
        duplicate(&is, names)
    }

    pub(crate) fn all(&self) -> Vec<MemberStatus> {
        self.by_name.values().cloned().collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<MemberStatus> {
        self.by_name.get(name).cloned()
    }

    pub(crate) fn duplicates(&self) -> Vec<Duplicate> {
        let groups = self.by_id.iter();
        groups.filter_map(|(key, names)| duplicate(key, names)).collect()
    }
}

fn duplicate((cluster_set, cluster_id): &Key, names: &BTreeSet<ClusterName>) -> Option<Duplicate> {
    (names.len() > 1).then(|| Duplicate {
        cluster_id: cluster_id.clone(),
        cluster_set: cluster_set.clone(),
        clusters: names.iter().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(statuses: &mut Statuses, name: &str, id: Option<&str>, set: Option<&str>) -> Option<Vec<String>> {
        let name = ClusterName::new(name).unwrap();
        let status = MemberStatus {
            name: name.clone(),
            cluster_id: id.map(Into::into),
            cluster_set: set.map(Into::into),
            answered: true,
            last_error: None,
        };
        let news = statuses.set(&name, Some(status))?;
        Some(news.clusters.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_id_counts_in_its_cluster_set_and_is_news_once() {
        let mut all = Statuses::default();
        assert_eq!(set(&mut all, "a", Some("1"), Some("shop")), None);
        assert_eq!(
            set(&mut all, "b", Some("1"), Some("other")),
            None,
            "another ClusterSet"
        );
        assert_eq!(set(&mut all, "c", Some("1"), None), None);
        assert_eq!(set(&mut all, "d", None, Some("shop")), None);
        let both = || Some(vec!["a".to_owned(), "d".to_owned()]);
        assert_eq!(set(&mut all, "d", Some("1"), Some("shop")), both());
        assert_eq!(set(&mut all, "d", Some("1"), Some("shop")), None, "no news");
        assert_eq!(all.duplicates().len(), 1);
        assert_eq!(set(&mut all, "d", Some("2"), Some("shop")), None);
        assert_eq!(all.duplicates(), []);
        assert_eq!(set(&mut all, "d", Some("1"), Some("shop")), both());
        all.set(&ClusterName::new("a").unwrap(), None);
        assert_eq!(all.duplicates(), []);
        assert_eq!(all.all().len(), 3);
        assert!(all.get("a").is_none());
    }
}
