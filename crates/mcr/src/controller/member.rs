//! One cluster as one controller sees it, from being taken in to being let go.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcr_core::{Cluster, Object, ObjectKey, Store};
use serde::de::IgnoredAny;
use tokio::task::AbortHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::gate::Gate;
use crate::reconciler::{ClusterLocal, Found};

/// See the module. What was seen in one membership never becomes work of a later one.
pub(crate) struct Member {
    pub(crate) cluster: Cluster,
    /// Numbers the memberships of a controller; the epoch of its queue.
    pub(crate) epoch: u64,
    pub(crate) token: Arc<CancellationToken>,
    /// What the reconciler keeps for this cluster.
    pub(crate) local: ClusterLocal,
    pub(crate) gate: Mutex<Gate>,
    primary: Mutex<Option<Store<IgnoredAny>>>,
    /// Objects that were deleted, until a request has dealt with that.
    tombstones: Mutex<HashMap<ObjectKey, Arc<Object>>>,
    /// The resource versions of objects that could not be decoded, so that each is told once.
    undecodable: Mutex<HashMap<ObjectKey, Box<str>>>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    closed: bool,
    next: u64,
    tasks: HashMap<u64, AbortHandle>,
}

/// None of these is held across anything that can fail half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes no key where there is nothing to forget, which is nearly always so.
fn forget<V>(known: &Mutex<HashMap<ObjectKey, V>>, key: &ObjectKey) {
    let mut known = lock(known);
    if !known.is_empty() {
        known.remove(key);
    }
}

impl Member {
    pub(crate) fn new(cluster: Cluster, epoch: u64) -> Self {
        Self {
            token: Arc::new(cluster.token().child_token()),
            cluster,
            epoch,
            local: ClusterLocal::default(),
            gate: Mutex::default(),
            primary: Mutex::default(),
            tombstones: Mutex::default(),
            undecodable: Mutex::default(),
            running: Mutex::default(),
        }
    }

    pub(crate) fn set_primary(&self, store: Option<Store<IgnoredAny>>) {
        *lock(&self.primary) = store;
    }

    /// What there is of an object; none if the cluster is gone.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<Found> {
        // Looked at under the lock: a clone of the store would cost more than the look.
        let found = match &*lock(&self.primary) {
            Some(store) => store.raw(key),
            None => return Some(Found::Unwatched),
        };
        match found {
            Ok(Some(object)) => Some(Found::Live(object)),
            Ok(None) => Some(match lock(&self.tombstones).get(key) {
                Some(object) => Found::Deleted(object.clone()),
                None => Found::Absent,
            }),
            Err(_) => None,
        }
    }

    /// The primary watch saw an object alive.
    pub(crate) fn alive(&self, key: &ObjectKey) {
        forget(&self.tombstones, key);
    }

    /// The primary watch saw an object deleted.
    pub(crate) fn dead(&self, key: &ObjectKey, object: Arc<Object>) {
        lock(&self.tombstones).insert(key.clone(), object);
        forget(&self.undecodable, key);
    }

    /// A request has dealt with this deletion.
    pub(crate) fn buried(&self, key: &ObjectKey, object: &Arc<Object>) {
        let mut tombstones = lock(&self.tombstones);
        if tombstones.get(key).is_some_and(|held| Arc::ptr_eq(held, object)) {
            tombstones.remove(key);
        }
    }

    /// Notes an object that can't be decoded; says whether that is news.
    pub(crate) fn is_news(&self, key: &ObjectKey, resource_version: &str) -> bool {
        let mut known = lock(&self.undecodable);
        if known.get(key).is_some_and(|known| **known == *resource_version) {
            return false;
        }
        known.insert(key.clone(), resource_version.into());
        true
    }

    pub(crate) fn decoded(&self, key: &ObjectKey) {
        forget(&self.undecodable, key);
    }

    /// Runs a task as part of the cluster; it is given its number, to be told back with [`ended`](Self::ended).
    /// Returns `false`, without running it, if the cluster has been let go.
    pub(crate) fn spawn<F>(&self, tracker: &TaskTracker, task: impl FnOnce(u64) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Held while spawning, so that whoever lets go of the cluster sees every task.
        let mut running = lock(&self.running);
        if running.closed {
            return false;
        }
        let id = running.next;
        running.next += 1;
        let handle = self.cluster.spawn(tracker.track_future(task(id)));
        running.tasks.insert(id, handle.abort_handle());
        true
    }

    pub(crate) fn ended(&self, id: u64) {
        lock(&self.running).tasks.remove(&id);
    }

    /// Tells running tasks to end and takes no more; says whether there are any.
    pub(crate) fn close(&self) -> bool {
        self.token.cancel();
        let mut running = lock(&self.running);
        running.closed = true;
        !running.tasks.is_empty()
    }

    /// Ends what still runs, at its next await.
    pub(crate) fn abort(&self) -> usize {
        let tasks: Vec<AbortHandle> = lock(&self.running).tasks.values().cloned().collect();
        for task in &tasks {
            task.abort();
        }
        tasks.len()
    }
}
