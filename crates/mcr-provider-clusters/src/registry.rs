//! The clusters, and for each running discovery the names whose changes it has not announced yet.
//!
//! There is no channel. A bounded channel could block `add`. (In Go's provider it can block for ever: it sends under a
//! lock that its receiver needs.) An unbounded channel grows with every change. A set of names does neither: the
//! change of a name is determined when it is announced, so many changes of one cluster become one announcement.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Boxed, because a BTreeMap allocates space for nearly twice as many values as it has.
    clusters: BTreeMap<ClusterName, Box<Entry>>,
    dirty: HashMap<u64, Dirty>,
    next_listener: u64,
}

/// The descriptions of a cluster. At least one of them exists.
struct Entry {
    good: Option<ClusterSpec>,
    broken: Option<BrokenCluster>,
}

/// Names in the order in which they first changed, each once. So a cluster that changes all the time does not delay
/// the announcements of others.
#[derive(Default)]
struct Dirty {
    order: VecDeque<ClusterName>,
    names: HashSet<ClusterName>,
}

impl Dirty {
    fn insert(&mut self, name: &ClusterName) {
        if self.names.insert(name.clone()) {
            self.order.push_back(name.clone());
        }
    }

    fn pop(&mut self) -> Option<ClusterName> {
        let name = self.order.pop_front()?;
        self.names.remove(&name);
        Some(name)
    }
}

impl Registry {
    pub(crate) fn add(&self, spec: ClusterSpec) -> bool {
        let mut state = self.state.lock();
        let name = spec.name.clone();
        let new = state
            .clusters
            .insert(
                name.clone(),
                Box::new(Entry {
                    good: Some(spec),
                    broken: None,
                }),
            )
            .is_none();
        self.notify(state, &name);
        new
    }

    pub(crate) fn broken(&self, broken: BrokenCluster) {
        let mut state = self.state.lock();
        let name = broken.name.clone();
        let entry = state.clusters.entry(name.clone()).or_insert_with(|| {
            Box::new(Entry {
                good: None,
                broken: None,
            })
        });
        entry.broken = Some(broken);
        self.notify(state, &name);
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let removed = state.clusters.remove_entry(name);
        if let Some((name, _)) = &removed {
            self.notify(state, name);
        }
        removed.is_some()
    }

    pub(crate) fn names(&self) -> Vec<ClusterName> {
        self.state.lock().clusters.keys().cloned().collect()
    }

    fn notify(&self, mut state: MutexGuard<'_, State>, name: &ClusterName) {
        for dirty in state.dirty.values_mut() {
            dirty.insert(name);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// One running discovery. Dropping it discards the changes that it has not announced.
pub(crate) struct Listener {
    registry: Arc<Registry>,
    id: u64,
    /// The changes to announce next. More than one only for a broken cluster that also has a good description.
    ready: VecDeque<Change>,
    /// How many of the initial names are not announced yet. `None` after all of them were announced.
    until_synced: Option<usize>,
}

impl Listener {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let mut state = registry.state.lock();
        let id = state.next_listener;
        state.next_listener += 1;
        let mut dirty = Dirty::default();
        for name in state.clusters.keys() {
            dirty.insert(name);
        }
        let until_synced = Some(state.clusters.len());
        state.dirty.insert(id, dirty);
        drop(state);
        Self {
            registry,
            id,
            ready: VecDeque::new(),
            until_synced,
        }
    }

    /// The next change. Cancel safe: a change that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            let registry = self.registry.clone();
            let changed = registry.changed.notified();
            tokio::pin!(changed);
            // The notification is enabled before the check, so that no change in between is missed.
            changed.as_mut().enable();
            if let Some(change) = self.take_change() {
                return change;
            }
            changed.await;
        }
    }

    fn take_change(&mut self) -> Option<Change> {
        if let Some(change) = self.ready.pop_front() {
            return Some(change);
        }
        if self.until_synced == Some(0) {
            self.until_synced = None;
            return Some(Change::Synced);
        }
        let mut state = self.registry.state.lock();
        let name = state.dirty.get_mut(&self.id)?.pop()?;
        self.until_synced = self.until_synced.map(|left| left - 1);
        match state.clusters.get(&name) {
            Some(entry) => {
                self.ready.extend(entry.good.clone().map(Change::Upsert));
                self.ready.extend(entry.broken.clone().map(Change::Broken));
            }
            None => self.ready.push_back(Change::Remove(name)),
        }
        self.ready.pop_front()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.registry.state.lock().dirty.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_discovery_leaves_nothing_behind() {
        let registry = Arc::new(Registry::default());
        let listeners: Vec<_> = (0..10).map(|_| Listener::new(registry.clone())).collect();
        assert_eq!(registry.state.lock().dirty.len(), 10);
        drop(listeners);
        assert!(registry.state.lock().dirty.is_empty());
    }
}
