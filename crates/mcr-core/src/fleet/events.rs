//! Who is told when the fleet changes.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::Notify;

use super::FleetShared;
use crate::{Cluster, ClusterName};

/// What happened to a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FleetEvent {
    /// The cluster has joined the fleet. It need not be connected yet.
    Engaged(Cluster),
    /// Its state, labels, properties or default namespace have changed. Several changes may be told as one.
    Updated(Cluster),
    /// The cluster has left, or another one takes its name (which is told next). This is never a deletion of
    /// its objects.
    Disengaged {
        /// The cluster's name.
        name: ClusterName,
        /// Which engagement has ended.
        epoch: u64,
    },
}

/// The names of the clusters that one subscriber has yet to look at: never more than there are clusters,
/// however slow the subscriber is.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    queue: Mutex<(VecDeque<ClusterName>, HashSet<ClusterName>)>,
    notify: Notify,
}

impl Pending {
    fn push(&self, name: &ClusterName) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.1.insert(name.clone()) {
            queue.0.push_back(name.clone());
            drop(queue);
            self.notify.notify_one();
        }
    }

    fn pop(&self) -> Option<ClusterName> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let name = queue.0.pop_front()?;
        queue.1.remove(&name);
        Some(name)
    }

    fn has(&self, name: &ClusterName) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.1.contains(name)
    }
}

/// All subscribers of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Mutex<Vec<Weak<Pending>>>);

impl Subscribers {
    pub(crate) fn add(&self) -> Arc<Pending> {
        let pending = Arc::new(Pending::default());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&pending));
        pending
    }

    pub(crate) fn publish(&self, name: &ClusterName) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for pending in all.iter().filter_map(Weak::upgrade) {
            pending.push(name);
        }
    }

    /// Whether anyone has yet to look at a cluster.
    pub(crate) fn are_behind(&self, name: &ClusterName) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter_map(Weak::upgrade)
            .any(|pending| pending.has(name))
    }
}

/// Follows the fleet; made by [`Fleet::subscribe`](super::Fleet::subscribe).
///
/// The clusters that are there come first, each as [`FleetEvent::Engaged`]. For each cluster the events are
/// in order; a slow follower is told the newest state and never makes anyone wait.
#[derive(Debug)]
pub struct FleetEvents {
    fleet: Arc<FleetShared>,
    pending: Arc<Pending>,
    seen: HashMap<ClusterName, u64>,
}

impl FleetEvents {
    pub(crate) fn new(fleet: Arc<FleetShared>) -> Self {
        let pending = fleet.subscribers().add();
        for cluster in fleet.clusters() {
            pending.push(cluster.name());
        }
        Self {
            fleet,
            pending,
            seen: HashMap::new(),
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> FleetEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.pending.notify.notified().await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<FleetEvent> {
        while let Some(name) = self.pending.pop() {
            let known = self.seen.get(&name).copied();
            let now = self.fleet.cluster(&name);
            match (known, now) {
                (None, Some(cluster)) => {
                    self.seen.insert(name, cluster.epoch());
                    return Some(FleetEvent::Engaged(cluster));
                }
                (Some(epoch), Some(cluster)) if cluster.epoch() == epoch => {
                    return Some(FleetEvent::Updated(cluster));
                }
                (Some(epoch), now) => {
                    self.seen.remove(&name);
                    if now.is_some() {
                        self.pending.push(&name);
                    }
                    return Some(FleetEvent::Disengaged { name, epoch });
                }
                (None, None) => {}
            }
        }
        None
    }
}
