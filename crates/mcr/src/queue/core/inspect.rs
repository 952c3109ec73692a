//! Reads the state of the queue.

use super::QueueCore;
use crate::queue::stats::{Counters, Depth};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash, E: Clone + PartialEq> QueueCore<C, K, E> {
    /// The number of waiting items, ready or delayed, without the running ones.
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Whether no item waits. Items may be running.
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// The number of runs that are not done, orphaned ones included.
    pub fn running(&self) -> usize {
        self.running
    }

    /// The current epoch of a cluster; `None` if the cluster is not engaged.
    pub fn epoch(&self, cluster: &C) -> Option<&E> {
        self.slots[self.engaged(cluster)? as usize].epoch.as_ref()
    }

    /// The items and the state of one cluster; `None` if the cluster is not engaged.
    pub fn depth(&self, cluster: &C, now: Instant) -> Option<Depth> {
        let slot = &self.slots[self.engaged(cluster)? as usize];
        let now = self.tick(now);
        Some(Depth {
            ready: slot.items.ready(),
            delayed: slot.items.delayed(),
            running: slot.running,
            orphaned: slot.orphans,
            gated: slot.gated,
            parked: slot.parked,
            releasing: slot.release.is_some_and(|release| release > now),
            oldest_wait: slot
                .items
                .oldest()
                .map(|since| Duration::from_nanos(now.saturating_sub(since))),
        })
    }

    /// When `key` of `cluster` may run next. A time in the past means that it is ready or running, or waits for its cluster.
    /// `None` if the queue does not know the key.
    pub fn due(&self, cluster: &C, key: &K) -> Option<Instant> {
        let slot = &self.slots[self.engaged(cluster)? as usize];
        let due = slot.items.due(key, &self.hasher)?;
        Some(self.base + Duration::from_nanos(due))
    }

    /// The engaged clusters with their epochs. Their order is arbitrary, but the same in every call.
    pub fn clusters(&self) -> impl Iterator<Item = (&C, &E)> {
        self.slots
            .iter()
            .filter_map(|(_, slot)| Some((&slot.name, slot.epoch.as_ref()?)))
    }

    /// The epochs of the clusters in which an item runs or can be dispatched.
    pub(crate) fn busy(&self) -> impl Iterator<Item = &E> {
        let slots = (self.running > 0 || self.ring.head().is_some()).then_some(&self.slots);
        let busy = slots.into_iter().flatten().map(|(_, slot)| slot);
        busy.filter(|slot| slot.running > 0 || slot.in_ring)
            .filter_map(|slot| slot.epoch.as_ref())
    }

    /// The waiting time of the item that has been ready longest, among the clusters that are neither gated nor parked.
    /// Reads every cluster, so it is for metrics and not for each dispatch.
    pub fn oldest_wait(&self, now: Instant) -> Option<Duration> {
        let open = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.gated && !slot.parked && slot.release.is_none());
        let oldest = open.filter_map(|(_, slot)| slot.items.oldest()).min()?;
        Some(Duration::from_nanos(self.tick(now).saturating_sub(oldest)))
    }

    /// The counters since the queue was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

impl<C, K, E> std::fmt::Debug for QueueCore<C, K, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueCore")
            .field("clusters", &self.index.len())
            .field("pending", &self.pending)
            .field("running", &self.running)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
