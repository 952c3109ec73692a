//! The queue behind a lock, with an async `next`.

use super::config::QueueConfig;
use super::core::{Added, QueueCore};
use super::priority::Priority;
use super::stats::{Counters, Depth};
use super::work::{Outcome, Work};
use parking_lot::Mutex;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The fair queue for many tasks: [`QueueCore`] behind a lock. The lock is held for a fraction of a microsecond, and never
/// across an await. Clones are handles to the same queue. The [module documentation](super) states the rules.
///
/// Any number of tasks may call [`next`](Self::next). Usually one loop calls it and spawns the runs.
///
/// ```
/// use mcr::queue::{FairQueue, Outcome, Priority, QueueConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let queue = FairQueue::new(QueueConfig::default().concurrency(64));
/// queue.engage("eu-1", 1);
/// queue.add(&"eu-1", "ns/a", Priority::Live);
///
/// while let Some(work) = queue.next().await {
///     // ... reconcile work.key of work.cluster ...
///     queue.done(&work, Outcome::Success { requeue_after: None });
///     queue.close();
/// }
/// # }
/// ```
pub struct FairQueue<C, K, E = u64> {
    shared: Arc<Shared<C, K, E>>,
}

struct Shared<C, K, E> {
    core: Mutex<QueueCore<C, K, E>>,
    changed: Notify,
    closed: AtomicBool,
}

impl<C, K, E> Clone for FairQueue<C, K, E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C, K, E> fmt::Debug for FairQueue<C, K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("FairQueue");
        match self.shared.core.try_lock() {
            Some(core) => debug.field("core", &*core),
            None => debug.field("core", &"<locked>"),
        };
        debug
            .field("closed", &self.shared.closed.load(Ordering::Relaxed))
            .finish()
    }
}

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash, E: Clone + PartialEq> FairQueue<C, K, E> {
    /// Makes an empty queue without clusters.
    pub fn new(config: QueueConfig) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(QueueCore::new(config, Instant::now())),
                changed: Notify::new(),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Changes the core, and wakes waiting tasks if an item or a deadline is new.
    fn update<R>(&self, change: impl FnOnce(&mut QueueCore<C, K, E>) -> R) -> R {
        let mut core = self.shared.core.lock();
        let before = core.earliest();
        let result = change(&mut core);
        let sooner = core
            .earliest()
            .is_some_and(|after| before.is_none_or(|before| after < before));
        let ready = core.has_dispatchable();
        drop(core);
        if ready {
            self.shared.changed.notify_one();
        }
        if sooner {
            // Every waiting task sleeps until the deadline that it saw, so that any of them may be cancelled.
            self.shared.changed.notify_waiters();
            self.shared.changed.notify_one();
        }
        result
    }

    /// Waits for the next item to run. Returns `None` when the queue is closed. The caller must call
    /// [`done`](Self::done) when the run is over, also after a panic or an abort.
    ///
    /// Cancel safe: the poll that returns an item is the one that takes it. If the future is dropped, no item is lost, and
    /// other waiting tasks are woken in its place.
    pub async fn next(&self) -> Option<Work<C, K, E>> {
        loop {
            // Registered before the call of `pop`, so that no change between it and the wait is missed.
            let changed = self.shared.changed.notified();
            if self.is_closed() {
                return None;
            }
            let (work, more, deadline) = {
                let mut core = self.shared.core.lock();
                let work = core.pop(Instant::now());
                (work, core.has_dispatchable(), core.next_deadline())
            };
            if let Some(work) = work {
                if more {
                    self.shared.changed.notify_one();
                }
                return Some(work);
            }
            match deadline {
                Some(deadline) => {
                    // After a timeout as after a change, the loop calls `pop` again.
                    let _ = tokio::time::timeout_at(deadline, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Closes the queue: every waiting and every further [`next`](Self::next) returns `None`, and the queue refuses adds.
    /// [`done`](Self::done) still works. The waiting items stay visible until the last handle is dropped.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.changed.notify_waiters();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst)
    }

    /// Calls [`QueueCore::engage`]. Returns how many pending items of an earlier epoch were dropped.
    pub fn engage(&self, cluster: C, epoch: E) -> usize {
        self.update(|core| core.engage(cluster, epoch))
    }

    /// Calls [`QueueCore::disengage`]. Returns how many pending items were dropped.
    pub fn disengage(&self, cluster: &C) -> usize {
        // The items and the epoch are freed after the lock is released.
        let detached = self.update(|core| core.detach(cluster));
        detached.map_or(0, |(dropped, ..)| dropped)
    }

    /// Calls [`QueueCore::set_gate`]. Returns `false` if the cluster is not engaged.
    pub fn set_gate(&self, cluster: &C, open: bool) -> bool {
        self.update(|core| core.set_gate(cluster, open))
    }

    /// Calls [`QueueCore::park`]. Returns `false` if the cluster is not engaged.
    pub fn park(&self, cluster: &C) -> bool {
        self.update(|core| core.park(cluster))
    }

    /// Calls [`QueueCore::unpark`]. Returns `false` if the cluster is not engaged.
    pub fn unpark(&self, cluster: &C, release_jitter: Duration) -> bool {
        self.update(|core| core.unpark(cluster, release_jitter, Instant::now()))
    }

    /// Calls [`QueueCore::set_weight`]. Returns `false` if the cluster is not engaged.
    pub fn set_weight(&self, cluster: &C, weight: u32) -> bool {
        self.update(|core| core.set_weight(cluster, weight))
    }

    /// Calls [`QueueCore::add`]. Returns `false` if the cluster is not engaged or the queue is closed.
    pub fn add(&self, cluster: &C, key: K, priority: Priority) -> bool {
        self.add_after(cluster, key, priority, Duration::ZERO)
    }

    /// Calls [`QueueCore::add_after`]. Returns `false` if the cluster is not engaged or the queue is closed.
    pub fn add_after(&self, cluster: &C, key: K, priority: Priority, delay: Duration) -> bool {
        self.add_within(cluster, None, (key, usize::MAX), priority, delay) == Added::Yes
    }

    /// As [`add_after`](Self::add_after), but only while the cluster is engaged with this epoch: a change from an earlier
    /// engagement of the cluster never becomes work of a later one. Returns `false` otherwise.
    pub fn add_in(&self, cluster: &C, epoch: &E, key: K, priority: Priority, delay: Duration) -> bool {
        self.add_within(cluster, Some(epoch), (key, usize::MAX), priority, delay) == Added::Yes
    }

    /// Calls `QueueCore::add_within`.
    pub(crate) fn add_within(
        &self,
        cluster: &C,
        epoch: Option<&E>,
        key: (K, usize),
        priority: Priority,
        delay: Duration,
    ) -> Added {
        if self.is_closed() {
            return Added::NotEngaged;
        }
        self.update(|core| core.add_within(cluster, epoch, key, priority, delay, Instant::now()))
    }

    /// Calls `QueueCore::retry_now`.
    pub(crate) fn retry_now(&self, cluster: &C) {
        self.update(|core| core.retry_now(cluster, Instant::now()));
    }

    /// Calls [`QueueCore::forget`]. Returns whether the key was pending.
    pub fn forget(&self, cluster: &C, key: &K) -> bool {
        self.update(|core| core.forget(cluster, key))
    }

    /// Calls [`QueueCore::done`]. Returns `false` if the queue did not use the outcome: the cluster was disengaged, or the
    /// run had ended before.
    pub fn done(&self, work: &Work<C, K, E>, outcome: Outcome) -> bool {
        self.update(|core| core.done(work, outcome, Instant::now()))
    }

    /// The number of waiting items, ready or delayed, without the running ones.
    pub fn len(&self) -> usize {
        self.shared.core.lock().len()
    }

    /// Whether no item waits. Items may be running.
    pub fn is_empty(&self) -> bool {
        self.shared.core.lock().is_empty()
    }

    /// The number of runs that are not done, orphaned ones included.
    pub fn running(&self) -> usize {
        self.shared.core.lock().running()
    }

    /// The items and the state of one cluster; `None` if the cluster is not engaged.
    pub fn depth(&self, cluster: &C) -> Option<Depth> {
        self.shared.core.lock().depth(cluster, Instant::now())
    }

    /// Calls [`QueueCore::due`].
    pub fn due(&self, cluster: &C, key: &K) -> Option<Instant> {
        self.shared.core.lock().due(cluster, key)
    }

    /// The current epoch of a cluster; `None` if the cluster is not engaged.
    pub fn epoch(&self, cluster: &C) -> Option<E> {
        self.shared.core.lock().epoch(cluster).cloned()
    }

    /// The engaged clusters with their epochs. Their order is arbitrary, but the same in every call.
    pub fn clusters(&self) -> Vec<(C, E)> {
        let core = self.shared.core.lock();
        core.clusters()
            .map(|(cluster, epoch)| (cluster.clone(), epoch.clone()))
            .collect()
    }

    /// Calls `QueueCore::busy`. Reads every cluster, unless none is busy.
    pub(crate) fn busy(&self) -> Vec<E> {
        self.shared.core.lock().busy().cloned().collect()
    }

    /// Calls [`QueueCore::oldest_wait`]. Reads every cluster, so it is for metrics.
    pub fn oldest_wait(&self) -> Option<Duration> {
        self.shared.core.lock().oldest_wait(Instant::now())
    }

    /// The counters since the queue was made.
    pub fn counters(&self) -> Counters {
        self.shared.core.lock().counters()
    }
}
