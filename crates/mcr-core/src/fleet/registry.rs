//! The clusters of a fleet: those that are engaged, and those that are draining.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;

use super::{cluster::Cluster, epoch::Epoch};
use mcr_access::ClusterName;

/// The clusters of a fleet.
#[derive(Default)]
pub(crate) struct Registry {
    /// From the announcement of a cluster until it begins to drain.
    engaged: DashMap<ClusterName, Cluster>,
    draining: DashMap<(ClusterName, Epoch), Cluster>,
    last_epoch: AtomicU64,
    /// How many clusters and scope endpoints have their own connection, or try to connect.
    connections: AtomicUsize,
}

impl Registry {
    /// The number of the next engagement.
    pub(crate) fn next_epoch(&self) -> Epoch {
        Epoch(self.last_epoch.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn insert(&self, cluster: &Cluster) {
        self.engaged.insert(cluster.name().clone(), cluster.clone());
    }

    /// Removes an engaged cluster, unless another engagement has taken its name.
    pub(crate) fn remove(&self, cluster: &Cluster) {
        self.engaged
            .remove_if(cluster.name(), |_, engaged| engaged.is_same(cluster));
    }

    pub(crate) fn insert_draining(&self, cluster: &Cluster) {
        self.draining
            .insert((cluster.name().clone(), cluster.epoch()), cluster.clone());
    }

    pub(crate) fn remove_draining(&self, cluster: &Cluster) {
        self.draining.remove(&(cluster.name().clone(), cluster.epoch()));
    }

    /// An engaged cluster.
    pub(crate) fn get(&self, name: &str) -> Option<Cluster> {
        self.engaged.get(name).map(|entry| entry.value().clone())
    }

    /// The engaged clusters, in no order.
    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.engaged.iter().map(|entry| entry.value().clone()).collect()
    }

    /// The engaged clusters and the draining ones, in the order of their epochs.
    pub(crate) fn with_draining(&self) -> Vec<Cluster> {
        let mut clusters = self.clusters();
        clusters.extend(self.draining.iter().map(|entry| entry.value().clone()));
        // A cluster that begins to drain between the two reads is in both maps.
        clusters.sort_by_key(Cluster::epoch);
        clusters.dedup_by_key(|cluster| cluster.epoch());
        clusters
    }

    pub(crate) fn is_draining(&self, name: &str) -> bool {
        self.draining.iter().any(|entry| entry.key().0 == *name)
    }

    /// The number of engaged clusters.
    pub(crate) fn len(&self) -> usize {
        self.engaged.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn count_connection(&self) -> CountedConnection<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        CountedConnection(&self.connections)
    }
}

/// Counts a connection until it is dropped.
pub(crate) struct CountedConnection<'a>(&'a AtomicUsize);

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
