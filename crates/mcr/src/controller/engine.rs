//! The state that all tasks of a controller share, and the way of a request into the queue.

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use mcr_core::{Cluster, ClusterName, Fleet, ObjectKey, internal::lock};
use mcr_lease::Leadership;
use tokio_util::task::TaskTracker;

use super::{
    counters::{Counters, count},
    gating::Gating,
    member::Member,
    plan::{Plan, WatchPlan},
};
use crate::{
    RequestKey,
    failure::panic_text,
    queue::{FairQueue, Priority},
    request::Target,
};

pub(crate) type Queue = FairQueue<ClusterName, ObjectKey>;

/// Read for each request, so its hasher is a fast one.
type Members = HashMap<ClusterName, Arc<Member>, foldhash::fast::RandomState>;

/// The state of a controller, which exists also before and after its run.
pub(crate) struct Core {
    pub(crate) plan: Plan,
    pub(crate) queue: Queue,
    pub(crate) gating: Gating,
    pub(crate) counters: Counters,
    /// Tracks every reconcile and every source of a cluster.
    pub(crate) tracker: TaskTracker,
    /// Set if the manager takes part in a leader election.
    pub(crate) leadership: OnceLock<Leadership>,
    members: RwLock<Members>,
    deferred: Mutex<DeferredRequests>,
}

/// Requests for clusters that have not joined yet.
#[derive(Default)]
struct DeferredRequests {
    keys: HashMap<ClusterName, HashSet<ObjectKey>>,
    count: usize,
    /// Whether the log has a warning about too many deferred requests.
    warned: bool,
}

/// More requests than this for clusters that have not joined come from a mistake, not from a race.
const MAX_DEFERRED: usize = 10_000;

impl Core {
    pub(crate) fn new(plan: Plan, queue: Queue) -> Self {
        let gating = plan.watches.iter().enumerate().filter_map(|(at, watch)| {
            let cluster = watch.gates_all.clone()?;
            Some((at, cluster, watch.request.to_string()))
        });
        Self {
            gating: Gating::new(gating),
            plan,
            queue,
            counters: Counters::default(),
            tracker: TaskTracker::new(),
            leadership: OnceLock::new(),
            members: RwLock::default(),
            deferred: Mutex::default(),
        }
    }

    pub(crate) fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn members_mut(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leadership without which the controller dispatches nothing. `None`: it always dispatches.
    pub(crate) fn needs(&self) -> Option<&Leadership> {
        self.leadership.get().filter(|_| self.plan.leader_only)
    }

    /// Whether another replica reconciles for this one.
    pub(crate) fn is_standby(&self) -> bool {
        self.needs().is_some_and(|leadership| !leadership.is_held())
    }

    /// Calls a function that the user gave to the controller. Logs and counts a panic in it, and returns `None`.
    pub(crate) fn guarded<T>(&self, what: &str, cluster: &str, call: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => Some(result),
            Err(panic) => {
                count(&self.counters.callback_panics);
                tracing::error!(controller = %self.plan.name, cluster, panic = panic_text(&*panic), "{what} panicked");
                None
            }
        }
    }

    /// Whether the selector of the controller chooses this cluster.
    pub(crate) fn selects(&self, cluster: &Cluster) -> bool {
        self.guarded("a cluster selector", cluster.name(), || {
            self.plan.clusters.matches(cluster)
        })
        .unwrap_or(false)
    }

    /// Whether the selector of a watch chooses this cluster.
    pub(crate) fn watches_in(&self, watch: &WatchPlan, cluster: &Cluster) -> bool {
        let selector = watch.clusters.as_ref().unwrap_or(&self.plan.clusters);
        self.guarded("a cluster selector", cluster.name(), || selector.matches(cluster))
            .unwrap_or(false)
    }

    /// Whether the selector of the controller or of any watch chooses this cluster.
    fn is_member(&self, cluster: &Cluster) -> bool {
        self.selects(cluster)
            || self
                .plan
                .watches
                .iter()
                .any(|watch| self.watches_in(watch, cluster))
    }

    /// Queues the deferred requests of a cluster that has joined. The cluster must be engaged in the queue.
    pub(crate) fn queue_deferred(&self, cluster: &ClusterName) {
        let keys = {
            let mut deferred = lock(&self.deferred);
            let keys = deferred.keys.remove(cluster).unwrap_or_default();
            deferred.count -= keys.len();
            keys
        };
        for key in keys {
            self.queue.add(cluster, key, Priority::Initial);
        }
    }

    fn defer(&self, key: RequestKey) -> bool {
        let mut deferred = lock(&self.deferred);
        // The cluster may have joined meanwhile. If it joins from now on, it gets its deferred requests.
        if self.queue.add(&key.cluster, key.object.clone(), Priority::Live) {
            return true;
        }
        if deferred.count >= MAX_DEFERRED {
            if !std::mem::replace(&mut deferred.warned, true) {
                tracing::warn!(controller = %self.plan.name, %key, "{MAX_DEFERRED} requests wait for clusters that have not joined; further ones are dropped. Check whether a mapper or source names clusters that don't exist");
            }
            count(&self.counters.misdirected);
            return false;
        }
        if deferred.keys.entry(key.cluster).or_default().insert(key.object) {
            deferred.count += 1;
        }
        true
    }
}

/// A running controller.
pub(crate) struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) fleet: Fleet,
}

impl Engine {
    /// Adds a request in the cluster that the key names.
    pub(crate) fn enqueue(&self, key: RequestKey, priority: Priority, delay: Duration) -> bool {
        let core = &self.core;
        if core
            .queue
            .add_after(&key.cluster, key.object.clone(), priority, delay)
        {
            return true;
        }
        if core.queue.is_closed() {
            return false;
        }
        match self.fleet.get(&key.cluster) {
            Ok(cluster) if !core.is_member(&cluster) => {
                tracing::debug!(controller = %core.plan.name, %key, "request dropped: the controller does not select its cluster");
                count(&core.counters.misdirected);
                false
            }
            // The cluster has not joined the controller yet, or is joining it now. The request is kept until then: the
            // order in which a request and its cluster come must not matter.
            _ if delay.is_zero() => core.defer(key),
            _ => false,
        }
    }

    /// Adds a request because of a change in the cluster of `member`.
    pub(crate) fn enqueue_from(
        &self,
        member: &Member,
        target: Target,
        priority: Priority,
        delay: Duration,
    ) -> bool {
        // The token of a leaving cluster is cancelled before the cluster is disengaged from the queue.
        if member.token.is_cancelled() {
            return false;
        }
        match target {
            Target::Here(key) => self.enqueue_here(member, key, priority, delay),
            Target::There(key) if key.cluster == *member.cluster.name() => {
                self.enqueue_here(member, key.object, priority, delay)
            }
            Target::There(key) => self.enqueue(key, priority, delay),
        }
    }

    /// Adds a request in the cluster of `member`, unless that has left.
    pub(crate) fn enqueue_here(
        &self,
        member: &Member,
        key: ObjectKey,
        priority: Priority,
        delay: Duration,
    ) -> bool {
        self.core
            .queue
            .add_in(member.cluster.name(), member.epoch, key, priority, delay)
    }
}
