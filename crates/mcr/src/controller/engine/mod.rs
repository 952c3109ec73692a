//! The state that all tasks of a controller share, and the way of a request into the queue.

pub(crate) mod counters;
mod deferred;
pub(crate) mod enqueue;
pub(crate) mod histogram;
pub(crate) mod plan;
pub(crate) mod running;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcr_core::{Cluster, ClusterName, Fleet, ObjectKey};
use mcr_lease::Leadership;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use self::{
    counters::Counters,
    deferred::DeferredRequests,
    plan::{Plan, WatchPlan},
};
use super::member::{Member, damping::FleetDamping, gate::Gating};
use crate::{
    failure::panic_text,
    queue::{Added, FairQueue, Priority},
    request::{RequestKey, Target},
    selector::ClusterSelector,
};

/// A cluster is engaged in the queue with its member as the epoch.
pub(crate) type Queue = FairQueue<ClusterName, ObjectKey, Arc<Member>>;

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
    deferred: Mutex<DeferredRequests>,
    pub(super) damping: Mutex<FleetDamping>,
    /// Whether a cluster has refused requests because too many were waiting in it.
    overflowed: AtomicBool,
    /// Whether all objects have to be reconciled, because another replica may have led since this one did.
    pub(super) leads_again: AtomicBool,
    /// Wakes the follower when a cluster may dispatch again, after an overflow or after the term of another replica.
    reopened: Notify,
    /// The number of clean-ups that have not succeeded yet.
    pub(crate) pending_clean_ups: AtomicUsize,
}

/// The most requests that wait in a cluster where nothing is dispatched, in addition to those of the objects of the primary
/// kind. Further ones are made anew when it dispatches.
pub(crate) const MOST_WAITING: usize = 10_000;

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
            deferred: Mutex::default(),
            damping: Mutex::default(),
            overflowed: AtomicBool::new(false),
            leads_again: AtomicBool::new(false),
            reopened: Notify::new(),
            pending_clean_ups: AtomicUsize::new(0),
        }
    }

    /// The leadership without which the controller dispatches nothing. `None`: it always dispatches.
    pub(crate) fn needs(&self) -> Option<&Leadership> {
        self.leadership.get().filter(|_| self.plan.settings.leader_only)
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
                self.counters.add(|counts| counts.callback_panics += 1);
                tracing::error!(controller = %self.plan.settings.name, cluster, panic = panic_text(&*panic), "{what} panicked");
                None
            }
        }
    }

    /// Whether the selector of the controller chooses this cluster.
    pub(crate) fn selects(&self, cluster: &Cluster) -> bool {
        self.selects_by(&self.plan.settings.clusters, cluster)
    }

    /// Whether the selector of the controller can't choose this cluster, which is not the hub.
    pub(crate) fn excludes(&self, cluster: &Cluster) -> bool {
        !cluster.is_hub() && self.plan.settings.clusters.excludes(cluster)
    }

    /// Whether the controller reconciles in this cluster. Where it cleans up, a reconcile for a watch with a selector of its own would
    /// write again what was deleted.
    pub(crate) fn accepts(&self, cluster: &Cluster, selected: bool) -> bool {
        selected || self.plan.settings.on_deselected.is_none() || cluster.is_hub()
    }

    /// Whether the selector of a watch chooses this cluster.
    pub(crate) fn watches_in(&self, watch: &WatchPlan, cluster: &Cluster) -> bool {
        self.selects_by(
            watch.clusters.as_ref().unwrap_or(&self.plan.settings.clusters),
            cluster,
        )
    }

    fn selects_by(&self, selector: &ClusterSelector, cluster: &Cluster) -> bool {
        self.guarded("a cluster selector", cluster.name(), || selector.matches(cluster))
            .unwrap_or(false)
    }

    /// Whether the selector of the controller or of any watch chooses this cluster, and the controller reconciles in it.
    fn is_member(&self, cluster: &Cluster) -> bool {
        let mut watches = self.plan.watches.iter();
        self.selects(cluster)
            || (self.accepts(cluster, false) && watches.any(|watch| self.watches_in(watch, cluster)))
    }

    /// Queues the deferred requests of a cluster that has joined. The member must be engaged in the queue.
    pub(crate) fn queue_deferred(&self, member: &Arc<Member>) {
        if !member.accepts {
            return;
        }
        let cluster = member.cluster.name();
        let keys = self.deferred.lock().take(cluster);
        for key in keys {
            self.queue
                .add_in(cluster, member, key, Priority::Initial, Duration::ZERO);
        }
    }

    fn defer(&self, key: RequestKey) -> bool {
        let mut deferred = self.deferred.lock();
        // The cluster may have joined meanwhile. If it joins from now on, it gets its deferred requests.
        let (cluster, object) = (&key.cluster, key.object.clone());
        if let Some(member) = self.queue.epoch(cluster)
            && member.accepts
            && self
                .queue
                .add_in(cluster, &member, object, Priority::Live, Duration::ZERO)
        {
            return true;
        }
        let (kept, dropped) = deferred.add(&key);
        self.counters.add(|counts| counts.misdirected += dropped as u64);
        if dropped > 0 && !std::mem::replace(&mut deferred.warned, true) {
            tracing::warn!(controller = %self.plan.settings.name, %key, "too many requests wait for clusters that have not joined; those of the clusters that have not come for longest are dropped. Check whether a mapper or source names clusters that don't exist");
        }
        kept
    }

    /// Whether the controller dispatches in no cluster: another replica reconciles, or a gating watch has not listed.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_standby() || !self.gating.is_open()
    }

    /// Adds a request that no object of the primary kind in the queue's cluster stands for, so nothing removes it when it is
    /// no longer needed. Where nothing is dispatched, such requests are limited.
    fn add_limited(
        &self,
        cluster: &ClusterName,
        member: Option<&Arc<Member>>,
        key: ObjectKey,
        priority: Priority,
        delay: Duration,
    ) -> Added {
        let Some(member) = member.cloned().or_else(|| self.queue.epoch(cluster)) else {
            return Added::NotEngaged;
        };
        if !member.accepts {
            return Added::NotEngaged;
        }
        let add = |most| {
            self.queue
                .add_within(cluster, Some(&member), (key.clone(), most), priority, delay)
        };
        let added = add(MOST_WAITING);
        if added != Added::Full {
            return added;
        }
        let closed = |depth: crate::queue::Depth| depth.gated || depth.parked;
        if !self.is_idle() && !self.queue.depth(cluster).is_some_and(closed) {
            return add(usize::MAX);
        }
        let added = add(MOST_WAITING + member.objects());
        if added == Added::Full {
            self.overflow(&member, "requests from mappers and sources are left out, and made anew from the stores when it dispatches; those of sources are lost");
        }
        added
    }

    /// Counts a request that is not kept where nothing is dispatched. `what` becomes of such requests is logged once.
    pub(crate) fn overflow(&self, member: &Member, what: &str) {
        self.counters.add(|counts| counts.overflowed += 1);
        member.overflowed.store(true, Ordering::SeqCst);
        if !self.overflowed.swap(true, Ordering::SeqCst) {
            tracing::warn!(controller = %self.plan.settings.name, cluster = %member.cluster.name(), "too many requests wait in a cluster in which the controller dispatches nothing: {what}");
        }
    }

    /// Wakes the follower: a cluster may dispatch again.
    pub(crate) fn reopened(&self) {
        if self.overflowed.load(Ordering::SeqCst) {
            self.reopened.notify_one();
        }
    }

    /// Wakes the follower: a later term has begun.
    pub(super) fn leads_again(&self) {
        self.leads_again.store(true, Ordering::SeqCst);
        self.reopened.notify_one();
    }

    /// Waits until a cluster that has refused requests may dispatch again, or a later term has begun.
    pub(crate) async fn wait_reopened(&self) {
        self.reopened.notified().await;
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
        match core.add_limited(&key.cluster, None, key.object.clone(), priority, delay) {
            Added::Yes => return true,
            Added::Full => return false,
            Added::NotEngaged if core.queue.is_closed() => return false,
            Added::NotEngaged => {}
        }
        match self.fleet.get(&key.cluster) {
            Ok(cluster) if !core.is_member(&cluster) => {
                tracing::debug!(controller = %core.plan.settings.name, %key, "request dropped: the controller does not select its cluster");
                core.counters.add(|counts| counts.misdirected += 1);
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
        member: &Arc<Member>,
        target: Target,
        priority: Priority,
        delay: Duration,
    ) -> bool {
        // The token of a leaving cluster is cancelled before the cluster is disengaged from the queue.
        if member.token.is_cancelled() {
            return false;
        }
        let name = member.cluster.name();
        let here = |key| {
            if !member.accepts {
                self.core.counters.add(|counts| counts.misdirected += 1);
            }
            self.core.add_limited(name, Some(member), key, priority, delay) == Added::Yes
        };
        match target {
            Target::Here(key) => here(key),
            Target::There(key) if key.cluster == *name => here(key.object),
            Target::There(key) => self.enqueue(key, priority, delay),
        }
    }

    /// Adds a request for an object of the primary kind in the cluster of `member`, unless that has left.
    pub(crate) fn enqueue_object(&self, member: &Arc<Member>, key: ObjectKey, priority: Priority) -> bool {
        self.core
            .queue
            .add_in(member.cluster.name(), member, key, priority, Duration::ZERO)
    }
}
