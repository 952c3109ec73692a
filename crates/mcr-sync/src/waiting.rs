//! Which sources wait for clusters that are away.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mcr::{ClusterName, RequestKey};

/// By source: the clusters that are away and hold it, as the last reconcile has found. An event of such a cluster leads to the source,
/// also if the cluster is no longer one of the targets' clusters.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<HashMap<RequestKey, BTreeSet<ClusterName>>>);

impl Waiting {
    fn inner(&self) -> MutexGuard<'_, HashMap<RequestKey, BTreeSet<ClusterName>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, source: &RequestKey, clusters: BTreeSet<ClusterName>) {
        if clusters.is_empty() {
            self.inner().remove(source);
        } else {
            self.inner().insert(source.clone(), clusters);
        }
    }

    pub(crate) fn of(&self, cluster: &ClusterName) -> Vec<RequestKey> {
        let inner = self.inner();
        let waiting = inner.iter().filter(|(_, clusters)| clusters.contains(cluster));
        waiting.map(|(source, _)| source.clone()).collect()
    }

    /// Forgets the sources of a cluster that has left.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.inner().retain(|source, _| source.cluster != *cluster);
    }
}
