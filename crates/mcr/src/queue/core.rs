//! The queue as a data structure: it decides which item runs next, without I/O, clock and lock.

mod inspect;

use super::backoff::Rng;
use super::config::QueueConfig;
use super::delay::{DelayHeap, Tick};
use super::item::Add;
use super::items::{Finished, Items};
use super::list::{Links, List};
use super::priority::Priority;
use super::stats::Counters;
use super::work::{Outcome, Work};
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// The longest delay that the queue keeps: one year. Longer delays are shortened to it.
pub const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most delayed items that a call moves to the lanes before it looks for an item to dispatch. It bounds the time of
/// one call, and so of a lock around it, when very many items are due at once.
const DUE_PER_CALL: usize = 64;

/// The items and the state of one cluster.
struct Slot<C, K, E> {
    name: C,
    items: Items<K>,
    /// `None`: the cluster is disengaged, and its slot stays until its orphaned runs are done.
    epoch: Option<E>,
    gated: bool,
    parked: bool,
    /// The time from which an unparked cluster may dispatch again.
    release: Option<Tick>,
    weight: u32,
    /// Dispatches left before the turn of the next cluster.
    turn: u32,
    ring: Links,
    in_ring: bool,
    running: usize,
    orphans: usize,
    /// The number of items of this cluster that are counted in `pending` of the queue.
    counted: usize,
}

/// What became of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    Yes,
    /// The cluster is not engaged, or is engaged with another epoch.
    NotEngaged,
    /// The key is new, and the cluster has as many waiting items as it may have.
    Full,
}

/// The fair queue as a plain data structure. [`FairQueue`](super::FairQueue) puts it behind a lock and adds an async
/// `next`. The [module documentation](super) states the rules.
///
/// Every method that depends on time takes `now`. Times should not go back between calls; a time that does is harmless,
/// and only makes delays longer. The same calls with the same [`QueueConfig::seed`] give the same results.
///
/// ```
/// use mcr::queue::{Outcome, Priority, QueueConfig, QueueCore};
/// use tokio::time::Instant;
///
/// let now = Instant::now();
/// let mut queue = QueueCore::new(QueueConfig::default(), now);
/// queue.engage("eu-1", 1);
/// assert!(queue.add(&"eu-1", "ns/a", Priority::Initial, now));
/// assert!(queue.add(&"eu-1", "ns/a", Priority::Live, now)); // the same item, more urgent
/// assert!(!queue.add(&"nowhere", "ns/a", Priority::Live, now));
///
/// let work = queue.pop(now).unwrap();
/// assert_eq!((work.cluster, work.key, work.priority), ("eu-1", "ns/a", Priority::Live));
/// assert!(queue.pop(now).is_none());
/// queue.done(&work, Outcome::Success { requeue_after: None }, now);
/// assert!(queue.is_empty());
/// ```
pub struct QueueCore<C, K, E = u64> {
    config: QueueConfig,
    base: Instant,
    debounce: Tick,
    age_after: Tick,
    hasher: RandomState,
    index: HashMap<C, u32, RandomState>,
    slots: Slab<Slot<C, K, E>>,
    /// The clusters that can dispatch now.
    ring: List,
    /// By slot: when the next delayed item or the release of the cluster is due. Absent while the cluster is gated or parked.
    timers: DelayHeap,
    running: usize,
    pending: usize,
    runs: u32,
    rng: Rng,
    counters: Counters,
}

fn ring<C, K, E>(slot: &mut Slot<C, K, E>) -> &mut Links {
    &mut slot.ring
}

fn ticks(duration: Duration) -> Tick {
    Tick::try_from(duration.min(MAX_DELAY).as_nanos()).unwrap_or(Tick::MAX)
}

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash, E: Clone + PartialEq> QueueCore<C, K, E> {
    /// Makes an empty queue without clusters. Its time starts at `now`.
    pub fn new(config: QueueConfig, now: Instant) -> Self {
        Self {
            base: now,
            debounce: ticks(config.debounce.unwrap_or_default()),
            age_after: ticks(config.age_after),
            hasher: RandomState::default(),
            index: HashMap::default(),
            slots: Slab::new(),
            ring: List::new(),
            timers: DelayHeap::default(),
            running: 0,
            pending: 0,
            runs: 0,
            rng: Rng::new(config.seed),
            counters: Counters::default(),
            config,
        }
    }

    fn tick(&self, now: Instant) -> Tick {
        Tick::try_from(now.saturating_duration_since(self.base).as_nanos()).unwrap_or(Tick::MAX)
    }

    /// The slot of a cluster, engaged or not.
    fn slot(&self, cluster: &C) -> Option<u32> {
        self.index.get(cluster).copied()
    }

    fn engaged(&self, cluster: &C) -> Option<u32> {
        self.slot(cluster)
            .filter(|at| self.slots[*at as usize].epoch.is_some())
    }

    /// Admits `cluster` under `epoch`, which stands for this engagement. From now on the queue accepts its items. The cluster
    /// starts gated if [`QueueConfig::start_gated`] is set, not parked, and with weight 1.
    ///
    /// A call with the current epoch changes nothing. A call with another epoch first calls
    /// [`disengage`](Self::disengage). Returns how many pending items that dropped.
    pub fn engage(&mut self, cluster: C, epoch: E) -> usize {
        let dropped = match self.engaged(&cluster) {
            Some(at) if self.slots[at as usize].epoch.as_ref() == Some(&epoch) => return 0,
            Some(_) => self.disengage(&cluster),
            None => 0,
        };
        let at = match self.slot(&cluster) {
            Some(at) => at,
            None => {
                let at = self.slots.insert(Slot {
                    name: cluster.clone(),
                    items: Items::new(),
                    epoch: None,
                    gated: false,
                    parked: false,
                    release: None,
                    weight: 1,
                    turn: 1,
                    ring: Links::NONE,
                    in_ring: false,
                    running: 0,
                    orphans: 0,
                    counted: 0,
                }) as u32;
                self.index.insert(cluster, at);
                at
            }
        };
        let slot = &mut self.slots[at as usize];
        slot.epoch = Some(epoch);
        slot.gated = self.config.start_gated;
        slot.parked = false;
        slot.release = None;
        (slot.weight, slot.turn) = (1, 1);
        dropped
    }

    /// Ends the current epoch of a cluster. Drops its queued and delayed items with their back-off history, and returns
    /// the number of items. The queue refuses adds until the cluster is engaged again. Its runs become orphans: they count
    /// in the global limit until they are done, and the queue ignores their outcomes.
    pub fn disengage(&mut self, cluster: &C) -> usize {
        self.detach(cluster).map_or(0, |(dropped, ..)| dropped)
    }

    /// As [`disengage`](Self::disengage), but returns the dropped items and the epoch, so that the caller can free them later.
    pub(super) fn detach(&mut self, cluster: &C) -> Option<(usize, Items<K>, E)> {
        let at = self.slot(cluster)?;
        let slot = &mut self.slots[at as usize];
        let epoch = slot.epoch.take()?;
        slot.orphans += std::mem::take(&mut slot.running);
        let (dropped, old) = slot.items.disown(&self.hasher);
        self.counters.dropped += dropped as u64;
        self.update(at);
        self.remove_if_unused(at);
        Some((dropped, old, epoch))
    }

    fn remove_if_unused(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        if slot.epoch.is_none() && slot.orphans == 0 {
            let slot = self.slots.remove(at as usize);
            self.index.remove(&slot.name);
            if self.slots.is_empty() {
                self.slots = Slab::new();
                self.index = HashMap::default();
            }
        }
    }

    /// Opens or closes the gate of a cluster. While it is closed, the queue accepts items and dispatches none.
    /// Returns `false` if the cluster is not engaged.
    pub fn set_gate(&mut self, cluster: &C, open: bool) -> bool {
        self.change(cluster, |slot| slot.gated = !open)
    }

    /// Stops the dispatches of a cluster that is unreachable or suspended. Its items stay.
    /// Returns `false` if the cluster is not engaged.
    pub fn park(&mut self, cluster: &C) -> bool {
        self.change(cluster, |slot| {
            slot.parked = true;
            slot.release = None;
        })
    }

    /// Ends [`park`](Self::park) after `release_jitter`. The caller chooses it at random, so that clusters that become
    /// reachable together do not dispatch together. Does nothing to a cluster that is not parked. Returns `false` if the
    /// cluster is not engaged.
    pub fn unpark(&mut self, cluster: &C, release_jitter: Duration, now: Instant) -> bool {
        let release =
            (!release_jitter.is_zero()).then(|| self.tick(now).saturating_add(ticks(release_jitter)));
        self.change(cluster, |slot| {
            if std::mem::take(&mut slot.parked) {
                slot.release = release;
            }
        })
    }

    /// Sets how many items the cluster may dispatch in each round (zero counts as 1).
    /// Returns `false` if the cluster is not engaged.
    pub fn set_weight(&mut self, cluster: &C, weight: u32) -> bool {
        self.change(cluster, |slot| {
            slot.weight = weight.max(1);
            slot.turn = slot.turn.min(slot.weight);
        })
    }

    fn change(&mut self, cluster: &C, change: impl FnOnce(&mut Slot<C, K, E>)) -> bool {
        let Some(at) = self.engaged(cluster) else {
            return false;
        };
        change(&mut self.slots[at as usize]);
        self.update(at);
        true
    }

    /// Adds `key` of `cluster`, to run now (with debounce: after the debounce time).
    /// Returns `false`, and does nothing, if the cluster is not engaged.
    pub fn add(&mut self, cluster: &C, key: K, priority: Priority, now: Instant) -> bool {
        self.add_after(cluster, key, priority, Duration::ZERO, now)
    }

    /// Adds `key` of `cluster`, to run after `delay`. Never postpones an earlier add. A zero delay is the same as
    /// [`add`](Self::add). Delays over [`MAX_DELAY`] are shortened to it.
    /// Returns `false`, and does nothing, if the cluster is not engaged.
    pub fn add_after(
        &mut self,
        cluster: &C,
        key: K,
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> bool {
        self.add_within(cluster, None, (key, usize::MAX), priority, delay, now) == Added::Yes
    }

    /// As [`add_after`](Self::add_after), but adds no new key if `most` items of the cluster wait. `epoch`: only while the
    /// cluster is engaged with it.
    pub(super) fn add_within(
        &mut self,
        cluster: &C,
        epoch: Option<&E>,
        (key, most): (K, usize),
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> Added {
        let engaged = self.engaged(cluster);
        let is_this =
            |at: &u32| epoch.is_none_or(|epoch| self.slots[*at as usize].epoch.as_ref() == Some(epoch));
        let Some(at) = engaged.filter(is_this) else {
            self.counters.refused += u64::from(epoch.is_none());
            return Added::NotEngaged;
        };
        let slot = &self.slots[at as usize];
        if slot.counted >= most && slot.items.due(&key, &self.hasher).is_none() {
            return Added::Full;
        }
        let now = self.tick(now);
        let add = Add {
            priority,
            now,
            at: now.saturating_add(ticks(delay)),
            debounce: self.debounce,
        };
        let new = self.slots[at as usize].items.add(key, add, &self.hasher);
        self.counters.adds += 1;
        self.counters.coalesced += u64::from(!new);
        self.update(at);
        Added::Yes
    }

    /// Drops `key` of `cluster`, with its back-off history, unless it is running. Returns whether it was pending.
    pub fn forget(&mut self, cluster: &C, key: &K) -> bool {
        let Some(at) = self.engaged(cluster) else {
            return false;
        };
        let forgotten = self.slots[at as usize].items.forget(key, &self.hasher);
        self.counters.dropped += u64::from(forgotten);
        self.update(at);
        forgotten
    }

    /// Lets the items of a cluster that wait for their next attempt run now, and forgets their failures.
    pub(super) fn retry_now(&mut self, cluster: &C, now: Instant) {
        let now = self.tick(now);
        if let Some(at) = self.engaged(cluster) {
            self.slots[at as usize].items.retry_now(now);
            self.update(at);
        }
    }

    /// Returns the next item to run, if one may run now. The caller must call [`done`](Self::done) when the run is over,
    /// however it ended. Until then the key does not run again, and its run counts in the limits.
    pub fn pop(&mut self, now: Instant) -> Option<Work<C, K, E>> {
        if self.at_limit() {
            return None;
        }
        let now = self.tick(now);
        let at = loop {
            let more = self.advance(now);
            if let Some(at) = self.ring.head() {
                break at;
            }
            if !more {
                return None;
            }
        };
        self.runs = self.runs.wrapping_add(1);
        let slot = &mut self.slots[at as usize];
        let (item, waited) = slot.items.start(now, self.age_after, self.runs)?;
        let work = Work {
            cluster: slot.name.clone(),
            key: item.key.clone(),
            epoch: slot.epoch.clone()?,
            priority: item.priority,
            attempt: item.attempt,
            queued_for: Duration::from_nanos(waited),
            run: self.runs,
            slot: at,
        };
        slot.running += 1;
        slot.turn -= 1;
        if slot.turn == 0 {
            slot.turn = slot.weight;
            self.ring.unlink(&mut self.slots, at, ring);
            self.ring.push_back(&mut self.slots, at, ring);
        }
        self.running += 1;
        self.counters.dispatched += 1;
        self.update(at);
        Some(work)
    }

    /// Ends a run that [`pop`](Self::pop) returned.
    ///
    /// An add that came during the run wins over `outcome`: the key is queued again at once, with the priority of the add.
    /// A failure still counts. Returns `false` if the queue did not use the outcome: the run was orphaned by
    /// [`disengage`](Self::disengage), or had ended before.
    pub fn done(&mut self, work: &Work<C, K, E>, outcome: Outcome, now: Instant) -> bool {
        // A cluster seldom changes its slot during a run.
        let here = |slot: &Slot<C, K, E>| slot.name == work.cluster;
        let at = match self.slots.get(work.slot as usize) {
            Some(slot) if here(slot) => work.slot,
            _ => match self.slot(&work.cluster) {
                Some(at) => at,
                None => return false,
            },
        };
        let now = self.tick(now);
        let mut failed = false;
        let requeue = |failures: u32| {
            let (delay, priority) = match outcome {
                Outcome::Success { requeue_after: None } | Outcome::Drop => return None,
                Outcome::Success {
                    requeue_after: Some(delay),
                } => (delay, Priority::Initial),
                Outcome::RetryAfter(delay) => (delay, Priority::Retry),
                Outcome::Retry => {
                    let failures = failures.saturating_add(1);
                    (
                        self.config.backoff.delay(failures, &mut self.rng),
                        Priority::Retry,
                    )
                }
            };
            failed = priority == Priority::Retry;
            Some((now.saturating_add(ticks(delay)), priority))
        };
        let slot = &mut self.slots[at as usize];
        let Some(finished) = slot.items.finish(&work.key, work.run, requeue, now, &self.hasher) else {
            return false;
        };
        let current = finished == Finished::Current;
        if current {
            slot.running -= 1;
        } else {
            slot.orphans -= 1;
        }
        self.running -= 1;
        self.counters.retries += u64::from(failed);
        self.update(at);
        self.remove_if_unused(at);
        current
    }

    /// The time at which [`pop`](Self::pop) should be called again if no other method is called before. `None`: only after
    /// another call. After a `pop` at `now` that returned `None`, the time is later than `now`.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.earliest().map(|at| self.base + Duration::from_nanos(at))
    }

    /// As [`next_deadline`](Self::next_deadline), as a tick.
    pub(super) fn earliest(&self) -> Option<Tick> {
        if self.at_limit() {
            return None;
        }
        self.timers.peek().map(|(at, _)| at)
    }

    /// Whether an item is ready for [`pop`](Self::pop) and the limit of concurrency has room. A delayed item
    /// is not ready, even if it is due: the next `pop` makes it ready.
    pub fn has_dispatchable(&self) -> bool {
        self.ring.head().is_some() && !self.at_limit()
    }

    fn at_limit(&self) -> bool {
        self.config
            .concurrency
            .is_some_and(|limit| self.running >= limit.max(1))
    }

    /// Moves due items to the lanes and ends due releases. Returns whether more is due than one call moves.
    fn advance(&mut self, now: Tick) -> bool {
        let mut budget = DUE_PER_CALL;
        while let Some((due, at)) = self.timers.peek()
            && due <= now
        {
            if budget == 0 {
                return true;
            }
            let slot = &mut self.slots[at as usize];
            if slot.release.is_some_and(|release| release <= now) {
                slot.release = None;
            }
            let moved = slot.items.move_due(now, budget);
            budget = budget.saturating_sub(moved.max(1));
            self.update(at);
        }
        false
    }

    /// Updates the ring, the timers and the totals after a change of a slot.
    fn update(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        let open = slot.epoch.is_some() && !slot.gated && !slot.parked;
        let free = self
            .config
            .cluster_concurrency
            .is_none_or(|limit| slot.running < limit.max(1));
        let timer = if open {
            slot.release.or_else(|| slot.items.next_due())
        } else {
            None
        };
        let dispatchable = open && free && slot.release.is_none() && slot.items.ready() > 0;

        let pending = slot.items.ready() + slot.items.delayed();
        self.pending = self.pending - slot.counted + pending;
        slot.counted = pending;

        if slot.in_ring != dispatchable {
            slot.in_ring = dispatchable;
            slot.turn = slot.weight;
            if dispatchable {
                self.ring.push_back(&mut self.slots, at, ring);
            } else {
                self.ring.unlink(&mut self.slots, at, ring);
            }
        }
        match timer {
            Some(timer) if self.timers.get(at) != Some(timer) => self.timers.set(at, timer),
            Some(_) => {}
            None => self.timers.remove(at),
        }
    }
}

#[cfg(test)]
mod tests;
