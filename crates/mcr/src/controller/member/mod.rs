//! A member: one cluster in one controller, from its joining to its leaving.

pub(crate) mod damping;
pub(crate) mod failing;
pub(crate) mod gate;

use std::{
    collections::HashMap,
    ptr,
    sync::{Arc, atomic::AtomicBool},
};

use mcr_core::{Cluster, Object, ObjectKey, Store};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::task::AbortHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{failing::FailingRequests, gate::SyncGate};
use crate::reconciler::{ClusterContext, LeftObject, StoredObject};

/// One cluster in one controller. Changes that one membership has seen never become work of a later membership.
pub(crate) struct Member {
    pub(crate) cluster: Cluster,
    /// Whether there may be requests for the cluster. Otherwise it is only watched.
    pub(crate) accepts: bool,
    pub(crate) token: Arc<CancellationToken>,
    /// The context of the reconciler for this cluster.
    pub(crate) context: ClusterContext,
    pub(crate) gate: Mutex<SyncGate>,
    pub(crate) failing: FailingRequests,
    /// Whether requests were left out because too many were waiting.
    pub(crate) overflowed: AtomicBool,
    primary: Mutex<Option<Store<IgnoredAny>>>,
    /// Objects that have left the primary watch, until a reconcile of that has succeeded.
    tombstones: Mutex<HashMap<ObjectKey, LeftObject>>,
    /// The resource versions of objects that could not be decoded, so that each version is reported once.
    undecodable: Mutex<HashMap<ObjectKey, Box<str>>>,
    tasks: Mutex<Tasks>,
}

/// The running tasks of a member.
#[derive(Default)]
struct Tasks {
    closed: bool,
    next: u64,
    handles: HashMap<u64, AbortHandle>,
}

/// The most tombstones of objects that no reconcile can have seen.
pub(super) const MOST_UNSEEN: usize = 1_000;

/// A member equals only itself.
impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

/// Removes a key. Does not hash it if the map is empty, as it nearly always is.
fn remove<V>(map: &Mutex<HashMap<ObjectKey, V>>, key: &ObjectKey) -> Option<V> {
    let mut map = map.lock();
    if map.is_empty() { None } else { map.remove(key) }
}

impl Member {
    pub(crate) fn new(cluster: Cluster, accepts: bool) -> Self {
        Self {
            accepts,
            token: Arc::new(cluster.token().child_token()),
            cluster,
            context: ClusterContext::default(),
            gate: Mutex::default(),
            failing: FailingRequests::default(),
            overflowed: AtomicBool::new(false),
            primary: Mutex::default(),
            tombstones: Mutex::default(),
            undecodable: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    pub(crate) fn set_primary(&self, store: Option<Store<IgnoredAny>>) {
        *self.primary.lock() = store;
    }

    /// Reads an object of the primary kind. Returns `None` if the cluster has left the fleet.
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<StoredObject> {
        // Read under the lock: a clone of the store would cost more than the read.
        let found = match &*self.primary.lock() {
            // The gate has decided that the request may run. An error would drop it.
            Some(store) => store.raw_unsynced(key),
            None => return Some(StoredObject::Unwatched),
        };
        match found {
            Ok(Some(object)) => Some(StoredObject::Live(object)),
            Ok(None) => Some(match self.tombstones.lock().get(key) {
                Some(left) => StoredObject::Left(left.clone()),
                None => StoredObject::Absent,
            }),
            Err(_) => None,
        }
    }

    /// The number of objects of the primary kind.
    pub(crate) fn objects(&self) -> usize {
        let primary = self.primary.lock();
        primary.as_ref().and_then(|store| store.len().ok()).unwrap_or(0)
    }

    /// Notes that an object exists in the primary watch. `is_new`: it was not there before.
    pub(crate) fn appeared(&self, key: &ObjectKey, is_new: bool) {
        // A reconcile may have seen the object of this name that was deleted before.
        let was_seen = remove(&self.tombstones, key).is_some_and(|left| !left.unseen);
        if is_new && !was_seen {
            self.gate.lock().appeared(key);
        }
    }

    /// Adds the tombstone of an object that has left the primary watch. Returns `false` if there are too many of objects that
    /// no reconcile can have seen.
    pub(crate) fn add_tombstone(&self, key: &ObjectKey, left: LeftObject) -> bool {
        let mut tombstones = self.tombstones.lock();
        if left.unseen && tombstones.len() >= MOST_UNSEEN {
            return false;
        }
        tombstones.insert(key.clone(), left);
        drop(tombstones);
        remove(&self.undecodable, key);
        true
    }

    /// Forgets what is kept of a key beside its tombstone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        remove(&self.undecodable, key);
        self.failing.remove(key);
    }

    /// Removes a tombstone after a reconcile of it has succeeded. Keeps the tombstone of a later object of the same name.
    pub(crate) fn left_reconciled(&self, key: &ObjectKey, object: &Arc<Object>) {
        let mut tombstones = self.tombstones.lock();
        if tombstones
            .get(key)
            .is_some_and(|found| Arc::ptr_eq(&found.object, object))
        {
            tombstones.remove(key);
        }
    }

    /// The number of objects that left the watch and are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.tombstones.lock().len()
    }

    /// Records an object that can't be decoded. Returns whether this version of it is new.
    pub(crate) fn add_undecodable(&self, key: &ObjectKey, resource_version: &str) -> bool {
        let mut known = self.undecodable.lock();
        if known.get(key).is_some_and(|known| **known == *resource_version) {
            return false;
        }
        known.insert(key.clone(), resource_version.into());
        true
    }

    pub(crate) fn remove_undecodable(&self, key: &ObjectKey) {
        remove(&self.undecodable, key);
    }

    /// Spawns a task of this member. `task` gets a number for [`task_ended`](Self::task_ended). Returns `false`, and
    /// spawns nothing, after [`close`](Self::close).
    pub(crate) fn spawn<F>(&self, tracker: &TaskTracker, task: impl FnOnce(u64) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // The lock is held during the spawn, so that `close` and `abort` see every task.
        let mut tasks = self.tasks.lock();
        if tasks.closed {
            return false;
        }
        let id = tasks.next;
        tasks.next += 1;
        let handle = self.cluster.spawn(tracker.track_future(task(id)));
        tasks.handles.insert(id, handle.abort_handle());
        true
    }

    /// Whether tasks are running.
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.lock().handles.is_empty()
    }

    pub(crate) fn task_ended(&self, id: u64) {
        self.tasks.lock().handles.remove(&id);
    }

    /// Cancels the token of the member and refuses further tasks. Returns whether tasks are running.
    pub(crate) fn close(&self) -> bool {
        self.token.cancel();
        let mut tasks = self.tasks.lock();
        tasks.closed = true;
        !tasks.handles.is_empty()
    }

    /// Aborts the running tasks at their next await. Returns their number.
    pub(crate) fn abort(&self) -> usize {
        let handles: Vec<AbortHandle> = self.tasks.lock().handles.values().cloned().collect();
        for handle in &handles {
            handle.abort();
        }
        handles.len()
    }
}
