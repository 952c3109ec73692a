//! Since when the deletion of a source has been waiting for clusters that are away.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcr::{ClusterName, RequestKey};
use tokio::time::Instant;

/// Per source that is being deleted: the clusters that are away, and since when without a break, as far as this program has seen.
#[derive(Default)]
pub(crate) struct Away(Mutex<HashMap<RequestKey, BTreeMap<ClusterName, Instant>>>);

impl Away {
    fn inner(&self) -> MutexGuard<'_, HashMap<RequestKey, BTreeMap<ClusterName, Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether a cluster is away while the deletion of a source waits for it.
    pub(crate) fn note(&self, source: &RequestKey, cluster: &ClusterName, is_away: bool) {
        let mut inner = self.inner();
        if is_away {
            let clusters = inner.entry(source.clone()).or_default();
            clusters.entry(cluster.clone()).or_insert_with(Instant::now);
        } else if let Some(clusters) = inner.get_mut(source) {
            clusters.remove(cluster);
        }
    }

    /// How long the deletion of a source has been waiting for this cluster.
    pub(crate) fn waited_for(&self, source: &RequestKey, cluster: &ClusterName) -> Duration {
        let inner = self.inner();
        let since = inner.get(source).and_then(|clusters| clusters.get(cluster));
        since.map_or(Duration::ZERO, Instant::elapsed)
    }

    /// How long the deletion of a source has been waiting, for each cluster that is away.
    pub(crate) fn waited(&self, source: &RequestKey) -> Vec<Duration> {
        let inner = self.inner();
        let clusters = inner.get(source).into_iter().flatten();
        clusters.map(|(_, since)| since.elapsed()).collect()
    }

    /// Forgets a source that is gone.
    pub(crate) fn forget(&self, source: &RequestKey) {
        self.inner().remove(source);
    }

    /// Forgets the sources of a cluster that has left.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        self.inner().retain(|source, _| source.cluster != *cluster);
    }
}

#[cfg(test)]
mod tests {
    use mcr::ObjectKey;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_was_back_is_waited_for_anew() {
        let (away, minute) = (Away::default(), Duration::from_secs(60));
        let [team, berlin, lyon] = ["team", "berlin", "lyon"].map(|name| ClusterName::new(name).unwrap());
        let source = RequestKey::new(team.clone(), ObjectKey::namespaced("default", "db"));
        away.note(&source, &berlin, true);
        tokio::time::advance(minute).await;
        away.note(&source, &berlin, true);
        away.note(&source, &lyon, true);
        assert_eq!(away.waited_for(&source, &berlin), minute);
        assert_eq!(away.waited(&source), [minute, Duration::ZERO]);
        away.note(&source, &berlin, false);
        away.note(&source, &berlin, true);
        assert_eq!(away.waited_for(&source, &berlin), Duration::ZERO);
        away.forget_cluster(&team);
        assert!(away.inner().is_empty());
    }
}
