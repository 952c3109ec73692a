//! What all tasks of a running controller share, and how changes become requests.

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use mcr_core::{ChangeSink, Cluster, ClusterName, Fleet, ObjectChange, ObjectKey, WatchStatus};
use tokio_util::task::TaskTracker;

use super::{
    member::{Member, lock},
    plan::{Plan, WatchPlan},
    status::{Counters, count},
};
use crate::{
    RequestKey,
    failure::panic_text,
    queue::{FairQueue, Priority},
    request::Target,
};

pub(crate) type Queue = FairQueue<ClusterName, ObjectKey>;

/// Looked at for each request.
type Members = HashMap<ClusterName, Arc<Member>, foldhash::fast::RandomState>;

/// What there is of a controller whether it runs or not.
pub(crate) struct Core {
    pub(crate) plan: Plan,
    pub(crate) queue: Queue,
    pub(crate) counters: Counters,
    /// Every reconcile and every source of a cluster.
    pub(crate) tracker: TaskTracker,
    members: RwLock<Members>,
    held: Mutex<Held>,
}

/// Requests for clusters that have not joined yet.
#[derive(Default)]
struct Held {
    keys: HashMap<ClusterName, HashSet<ObjectKey>>,
    count: usize,
    told: bool,
}

/// More requests than this for clusters that are not there are a mistake, not a race.
const MAX_HELD: usize = 10_000;

impl Core {
    pub(crate) fn new(plan: Plan, queue: Queue) -> Self {
        Self {
            plan,
            queue,
            counters: Counters::default(),
            tracker: TaskTracker::new(),
            members: RwLock::default(),
            held: Mutex::default(),
        }
    }

    pub(crate) fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn members_mut(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function of the user's; a panic in it must not take the fleet along.
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

    /// Whether the controller itself, whichever of its watches, is about this cluster.
    pub(crate) fn selects(&self, cluster: &Cluster) -> bool {
        self.guarded("a cluster selector", cluster.name(), || {
            self.plan.clusters.matches(cluster)
        })
        .unwrap_or(false)
    }

    pub(crate) fn watches_in(&self, watch: &WatchPlan, cluster: &Cluster) -> bool {
        let selector = watch.clusters.as_ref().unwrap_or(&self.plan.clusters);
        self.guarded("a cluster selector", cluster.name(), || selector.matches(cluster))
            .unwrap_or(false)
    }

    fn is_for(&self, cluster: &Cluster) -> bool {
        self.selects(cluster)
            || self
                .plan
                .watches
                .iter()
                .any(|watch| self.watches_in(watch, cluster))
    }

    /// Gives a cluster that joined what was asked for before. The cluster must be engaged in the queue already.
    pub(crate) fn deliver_held(&self, cluster: &ClusterName) {
        let keys = {
            let mut held = lock(&self.held);
            let keys = held.keys.remove(cluster).unwrap_or_default();
            held.count -= keys.len();
            keys
        };
        for key in keys {
            self.queue.add(cluster, key, Priority::Initial);
        }
    }

    fn hold(&self, key: RequestKey) -> bool {
        let mut held = lock(&self.held);
        // It may have joined in the meantime; if it joins from now on, it takes what is held.
        if self.queue.add(&key.cluster, key.object.clone(), Priority::Live) {
            return true;
        }
        if held.count >= MAX_HELD {
            if !std::mem::replace(&mut held.told, true) {
                tracing::warn!(controller = %self.plan.name, %key, "{MAX_HELD} requests wait for clusters that have not joined; further ones are dropped. Does a mapper or source name clusters that don't exist?");
            }
            count(&self.counters.misdirected);
            return false;
        }
        if held.keys.entry(key.cluster).or_default().insert(key.object) {
            held.count += 1;
        }
        true
    }
}

/// A controller that runs.
pub(crate) struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) fleet: Fleet,
}

impl Engine {
    /// Asks for a request in whichever cluster the key names.
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
            Ok(cluster) if !core.is_for(&cluster) => {
                tracing::debug!(controller = %core.plan.name, %key, "request dropped: the controller does not select this cluster");
                count(&core.counters.misdirected);
                false
            }
            // It has not joined, or joins just now: what is asked for today must not depend on who came first.
            _ if delay.is_zero() => core.hold(key),
            _ => false,
        }
    }

    /// Asks for a request on behalf of something seen in a cluster.
    pub(crate) fn enqueue_from(
        &self,
        member: &Member,
        target: Target,
        priority: Priority,
        delay: Duration,
    ) -> bool {
        // The token of a leaving cluster is cancelled a moment before the queue learns of it.
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

    fn enqueue_here(&self, member: &Member, key: ObjectKey, priority: Priority, delay: Duration) -> bool {
        self.core
            .queue
            .add_in(member.cluster.name(), member.epoch, key, priority, delay)
    }
}

/// Turns the changes of one watch in one cluster into requests.
pub(crate) struct WatchSink {
    pub(crate) engine: Arc<Engine>,
    pub(crate) member: Arc<Member>,
    /// The number of the watch.
    pub(crate) at: usize,
}

impl WatchSink {
    fn passes(&self, watch: &WatchPlan, change: &ObjectChange) -> bool {
        let ask = || watch.predicates.iter().all(|predicate| predicate.passes(change));
        // A request too many does no harm, one too few does.
        self.engine
            .core
            .guarded("a predicate", self.member.cluster.name(), ask)
            .unwrap_or(true)
    }

    fn primary_changed(&self, key: &ObjectKey, change: &ObjectChange, passes: bool, priority: Priority) {
        if change.new.is_some() {
            self.member.alive(key);
        } else if passes && let Some(old) = &change.old {
            self.member.dead(key, old.clone());
        }
        if passes {
            self.engine
                .enqueue_here(&self.member, key.clone(), priority, Duration::ZERO);
        }
    }
}

impl ChangeSink for WatchSink {
    fn changed(&self, change: &ObjectChange) {
        if self.member.token.is_cancelled() {
            return;
        }
        let core = &self.engine.core;
        let (Some(watch), Some(key)) = (core.plan.watches.get(self.at), change.key()) else {
            return;
        };
        let priority = if change.initial {
            Priority::Initial
        } else {
            Priority::Live
        };
        let passes = self.passes(watch, change);
        let Some(map) = &watch.map else {
            return self.primary_changed(key, change, passes, priority);
        };
        if !passes {
            return;
        }
        let cluster = &self.member.cluster;
        match core.guarded("a mapper", cluster.name(), || map(cluster, change)) {
            Some(Ok(targets)) => {
                for target in targets {
                    self.engine
                        .enqueue_from(&self.member, target, priority, Duration::ZERO);
                }
            }
            Some(Err(error)) => {
                count(&core.counters.undecodable);
                tracing::warn!(controller = %core.plan.name, cluster = %cluster.name(), %error, "nobody was told of a change");
            }
            None => {}
        }
    }

    fn status_changed(&self, status: &WatchStatus) {
        let mut gate = lock(&self.member.gate);
        gate.told(self.at, status);
        if !gate.closed {
            // Under the gate's lock, so that the last word is the right one.
            self.engine
                .core
                .queue
                .set_gate(self.member.cluster.name(), gate.is_open());
        }
    }
}
