//! The observers of a fleet: the subscribers of its events, and its counts.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::counts::Counts;
use mcr_access::ClusterName;

/// The observers of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    subscribers: Mutex<Vec<Weak<Pending>>>,
    pub(crate) counts: Counts,
}

impl Observers {
    pub(crate) fn subscribe(&self) -> Arc<Pending> {
        let pending = Arc::new(Pending::default());
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(Arc::downgrade(&pending));
        pending
    }

    /// Notifies all subscribers that a cluster has changed.
    pub(crate) fn publish(&self, name: &ClusterName) {
        let subscribers = self.subscribers.lock();
        for pending in subscribers.iter().filter_map(Weak::upgrade) {
            pending.push(name);
        }
    }
}

/// The names of the changed clusters that one subscriber has not read yet.
///
/// Each name is in it once, so a slow subscriber costs no more than one entry for each cluster.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    queue: Mutex<Queue>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<ClusterName>,
    names: HashSet<ClusterName>,
}

impl Pending {
    pub(crate) fn push(&self, name: &ClusterName) {
        let mut queue = self.queue.lock();
        if queue.names.insert(name.clone()) {
            queue.order.push_back(name.clone());
            drop(queue);
            self.notify.notify_one();
        }
    }

    pub(crate) fn pop(&self) -> Option<ClusterName> {
        let mut queue = self.queue.lock();
        let name = queue.order.pop_front()?;
        queue.names.remove(&name);
        Some(name)
    }

    /// Waits until a name is pushed. Cancel safe.
    pub(crate) async fn pushed(&self) {
        self.notify.notified().await;
    }
}
