//! Requests for clusters that have not joined yet.

use std::collections::{BTreeMap, HashMap, HashSet};

use mcr_core::{ClusterName, ObjectKey};

use crate::request::RequestKey;

/// The most requests that wait for one cluster. A mapper with a mistake makes more, but not a cluster that joins late.
const MAX_PER_CLUSTER: usize = 10_000;
/// The most requests that wait for all clusters together.
const MAX_TOTAL: usize = 100_000;

/// The waiting requests by cluster. If there are too many, the cluster whose first request is the oldest loses its
/// requests.
#[derive(Default)]
pub(super) struct DeferredRequests {
    /// For each cluster the number of its first request, and the objects of all its requests.
    clusters: HashMap<ClusterName, (u64, HashSet<ObjectKey>)>,
    /// The clusters by the number of their first request.
    order: BTreeMap<u64, ClusterName>,
    /// The number that a first request got last.
    last_number: u64,
    count: usize,
    /// Whether the caller has logged a warning about dropped requests, so that it logs no second one.
    pub(super) warned: bool,
}

impl DeferredRequests {
    /// Adds a request. Returns whether the table keeps it, and how many requests the table has dropped.
    pub(super) fn add(&mut self, key: &RequestKey) -> (bool, usize) {
        let (_, keys) = self.clusters.entry(key.cluster.clone()).or_insert_with(|| {
            self.last_number += 1;
            self.order.insert(self.last_number, key.cluster.clone());
            (self.last_number, HashSet::new())
        });
        if keys.contains(&key.object) {
            return (true, 0);
        }
        if keys.len() >= MAX_PER_CLUSTER {
            return (false, 1);
        }
        keys.insert(key.object.clone());
        self.count += 1;
        let mut dropped = 0;
        while self.count > MAX_TOTAL
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            dropped += self.take(&oldest.clone()).len();
        }
        (true, dropped)
    }

    /// Removes and returns the requests of a cluster.
    pub(super) fn take(&mut self, cluster: &ClusterName) -> HashSet<ObjectKey> {
        let Some((number, keys)) = self.clusters.remove(cluster) else {
            return HashSet::new();
        };
        self.order.remove(&number);
        self.count -= keys.len();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: usize, object: usize) -> RequestKey {
        let cluster = ClusterName::new(format!("c{cluster}")).unwrap();
        RequestKey::new(cluster, ObjectKey::namespaced("ns", object.to_string()))
    }

    #[test]
    fn clusters_that_never_come_keep_a_bounded_number_and_a_joining_one_gets_its_requests() {
        for of_each in [1, 5_000, usize::MAX] {
            let mut deferred = DeferredRequests::default();
            let add = |event| deferred.add(&key(event / of_each, event % of_each)).1;
            let dropped: usize = (0..400_000).map(add).sum();
            assert!(deferred.count <= MAX_TOTAL && deferred.order.len() == deferred.clusters.len());
            assert_eq!(dropped, 400_000 - deferred.count, "each lost request is counted");
            // A cluster that joins now gets its request, whatever fills the table.
            assert!(deferred.add(&key(2_000_000, 1)).0);
            assert_eq!(
                [(); 2].map(|()| deferred.take(&key(2_000_000, 1).cluster).len()),
                [1, 0]
            );
        }
    }
}
