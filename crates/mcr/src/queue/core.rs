//! The decision logic: which item runs next. No I/O, no clock, no lock.

mod inspect;

use super::backoff::Rng;
use super::delay::{DelayHeap, Tick};
use super::items::{Finished, Items, Verdict, Wish};
use super::list::{Links, List};
use super::{Counters, Outcome, Priority, QueueConfig, Work};
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// The longest delay the queue keeps; longer ones are shortened to it. One year.
pub const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// How many delayed items one call moves to the lanes before it looks for one to dispatch: it bounds the time that
/// one call takes (and a lock around it is held) when very many fall due together.
const MATURE_AT_ONCE: usize = 64;

/// Everything about one cluster.
struct Slot<C, K> {
    name: C,
    items: Items<K>,
    /// `None`: disengaged, here only because orphaned runs are not done.
    epoch: Option<u64>,
    gated: bool,
    parked: bool,
    /// Unparked, but not before this.
    release: Option<Tick>,
    weight: u32,
    /// Dispatches left before the next cluster's turn.
    turn: u32,
    ring: Links,
    in_ring: bool,
    running: usize,
    orphans: usize,
    /// What this cluster adds to the queue's `pending`.
    counted: usize,
}

/// The two-level fair queue as a plain data structure; [`FairQueue`](super::FairQueue) is the same behind a lock, with
/// an async `next`. The [module documentation](super) states the rules.
///
/// Every method that depends on time takes `now`; calls should carry times that do not go back (one that does is
/// harmless, it only makes delays longer). The same calls with the same [`QueueConfig::seed`] give the same answers.
///
/// ```
/// use mcr::queue::{Outcome, Priority, QueueConfig, QueueCore};
/// use tokio::time::Instant;
///
/// let now = Instant::now();
/// let mut queue = QueueCore::new(QueueConfig::default(), now);
/// queue.engage("eu-1", 1);
/// assert!(queue.add(&"eu-1", "ns/a", Priority::Initial, now));
/// assert!(queue.add(&"eu-1", "ns/a", Priority::Live, now)); // the same work, more urgent
/// assert!(!queue.add(&"nowhere", "ns/a", Priority::Live, now));
///
/// let work = queue.pop(now).unwrap();
/// assert_eq!((work.cluster, work.key, work.priority), ("eu-1", "ns/a", Priority::Live));
/// assert!(queue.pop(now).is_none());
/// queue.done(&work, Outcome::Success { requeue_after: None }, now);
/// assert!(queue.is_empty());
/// ```
pub struct QueueCore<C, K> {
    config: QueueConfig,
    base: Instant,
    debounce: Tick,
    age_after: Tick,
    hasher: RandomState,
    index: HashMap<C, u32, RandomState>,
    slots: Slab<Slot<C, K>>,
    /// The clusters that can dispatch right now, and only those.
    ring: List,
    /// When a cluster that may dispatch has its next delayed item, or its release.
    timers: DelayHeap,
    running: usize,
    pending: usize,
    runs: u32,
    rng: Rng,
    counters: Counters,
}

fn ring<C, K>(slot: &mut Slot<C, K>) -> &mut Links {
    &mut slot.ring
}

fn ticks(duration: Duration) -> Tick {
    Tick::try_from(duration.min(MAX_DELAY).as_nanos()).unwrap_or(Tick::MAX)
}

impl<C: Clone + Eq + Hash, K: Clone + Eq + Hash> QueueCore<C, K> {
    /// An empty queue without clusters. `now` becomes the origin of its time.
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

    /// The slot of a cluster, orphaned or not.
    fn slot(&self, cluster: &C) -> Option<u32> {
        self.index.get(cluster).copied()
    }

    fn engaged(&self, cluster: &C) -> Option<u32> {
        self.slot(cluster)
            .filter(|at| self.slots[*at as usize].epoch.is_some())
    }

    /// Lets `cluster` in, as its life number `epoch`: from now on its work is accepted. Gated if
    /// [`QueueConfig::start_gated`], not parked, of weight 1.
    ///
    /// Engaging the current epoch again changes nothing. Another epoch first does what [`disengage`](Self::disengage)
    /// does. Returns how many pending items that dropped.
    pub fn engage(&mut self, cluster: C, epoch: u64) -> usize {
        let dropped = match self.engaged(&cluster) {
            Some(at) if self.slots[at as usize].epoch == Some(epoch) => return 0,
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

    /// Ends the cluster's current epoch: its queued and delayed items and its back-off history are dropped, and their
    /// number returned; further adds are refused until it is engaged again. Its runs become orphans: they keep their
    /// place in the global limit until they are done, and what they return is ignored.
    pub fn disengage(&mut self, cluster: &C) -> usize {
        self.detach(cluster).0
    }

    /// [`disengage`](Self::disengage), leaving the dropped items to be freed by the caller.
    pub(super) fn detach(&mut self, cluster: &C) -> (usize, Option<Items<K>>) {
        let Some(at) = self.engaged(cluster) else {
            return (0, None);
        };
        let slot = &mut self.slots[at as usize];
        slot.epoch = None;
        slot.orphans += std::mem::take(&mut slot.running);
        let (dropped, old) = slot.items.disown(&self.hasher);
        self.counters.dropped += dropped as u64;
        self.settle(at);
        self.forget_if_over(at);
        (dropped, Some(old))
    }

    fn forget_if_over(&mut self, at: u32) {
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

    /// Opens or closes the cluster's gate. Behind a closed one items gather, none is dispatched.
    /// Returns `false` if the cluster is not engaged.
    pub fn set_gate(&mut self, cluster: &C, open: bool) -> bool {
        self.change(cluster, |slot| slot.gated = !open)
    }

    /// Stops dispatching for a cluster that cannot be reached or is suspended. Its items stay.
    /// Returns `false` if the cluster is not engaged.
    pub fn park(&mut self, cluster: &C) -> bool {
        self.change(cluster, |slot| {
            slot.parked = true;
            slot.release = None;
        })
    }

    /// Ends [`park`](Self::park) after `release_jitter`, which the caller draws, so that clusters that come back together
    /// do not dispatch together. Does nothing to a cluster that is not parked. Returns `false` if it is not engaged.
    pub fn unpark(&mut self, cluster: &C, release_jitter: Duration, now: Instant) -> bool {
        let release =
            (!release_jitter.is_zero()).then(|| self.tick(now).saturating_add(ticks(release_jitter)));
        self.change(cluster, |slot| {
            if std::mem::take(&mut slot.parked) {
                slot.release = release;
            }
        })
    }

    /// Sets how many items the cluster may dispatch per round (zero counts as 1).
    /// Returns `false` if the cluster is not engaged.
    pub fn set_weight(&mut self, cluster: &C, weight: u32) -> bool {
        self.change(cluster, |slot| {
            slot.weight = weight.max(1);
            slot.turn = slot.turn.min(slot.weight);
        })
    }

    fn change(&mut self, cluster: &C, change: impl FnOnce(&mut Slot<C, K>)) -> bool {
        let Some(at) = self.engaged(cluster) else {
            return false;
        };
        change(&mut self.slots[at as usize]);
        self.settle(at);
        true
    }

    /// Wishes that `key` of `cluster` runs now (after the debounce time, if there is one).
    /// Returns `false`, and does nothing, if the cluster is not engaged.
    pub fn add(&mut self, cluster: &C, key: K, priority: Priority, now: Instant) -> bool {
        self.add_after(cluster, key, priority, Duration::ZERO, now)
    }

    /// Wishes that `key` of `cluster` runs once `delay` has passed. It never postpones an earlier wish. A zero delay is
    /// [`add`](Self::add); delays over [`MAX_DELAY`] are shortened to it.
    /// Returns `false`, and does nothing, if the cluster is not engaged.
    pub fn add_after(
        &mut self,
        cluster: &C,
        key: K,
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> bool {
        let Some(at) = self.engaged(cluster) else {
            self.counters.refused += 1;
            return false;
        };
        self.wish(at, key, priority, delay, now);
        true
    }

    /// [`add_after`](Self::add_after), but only while the cluster is engaged with this epoch.
    pub(super) fn add_in(
        &mut self,
        cluster: &C,
        epoch: u64,
        key: K,
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> bool {
        let at = self
            .slot(cluster)
            .filter(|at| self.slots[*at as usize].epoch == Some(epoch));
        let Some(at) = at else {
            return false;
        };
        self.wish(at, key, priority, delay, now);
        true
    }

    fn wish(&mut self, at: u32, key: K, priority: Priority, delay: Duration, now: Instant) {
        let now = self.tick(now);
        let wish = Wish {
            priority,
            now,
            at: now.saturating_add(ticks(delay)),
            debounce: self.debounce,
        };
        let new = self.slots[at as usize].items.wish(key, wish, &self.hasher);
        self.counters.adds += 1;
        self.counters.coalesced += u64::from(!new);
        self.settle(at);
    }

    /// The next item to run, if one may run now. The caller must tell [`done`](Self::done) when the run is over, however
    /// it ended: until then the key does not run again and keeps its place in the limits.
    pub fn pop(&mut self, now: Instant) -> Option<Work<C, K>> {
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
        let started = slot.items.start(now, self.age_after, self.runs)?;
        let work = Work {
            cluster: slot.name.clone(),
            key: started.item.key.clone(),
            epoch: slot.epoch?,
            priority: started.item.priority,
            attempt: started.item.attempt,
            queued_for: Duration::from_nanos(started.waited),
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
        self.settle(at);
        Some(work)
    }

    /// Ends a run that [`pop`](Self::pop) gave out.
    ///
    /// Wishes that came while it ran win over what `outcome` asks for: the key is queued again at once, with the priority
    /// wished. A failure is counted all the same. Returns `false` if the outcome was not used: the run was orphaned by a
    /// disengage, or it was told before.
    pub fn done(&mut self, work: &Work<C, K>, outcome: Outcome, now: Instant) -> bool {
        // It seldom moves while something runs.
        let here = |slot: &Slot<C, K>| slot.name == work.cluster;
        let at = match self.slots.get(work.slot as usize) {
            Some(slot) if here(slot) => work.slot,
            _ => match self.slot(&work.cluster) {
                Some(at) => at,
                None => return false,
            },
        };
        let now = self.tick(now);
        let mut failed = false;
        let verdict = |failures: u32| {
            let (delay, priority) = match outcome {
                Outcome::Success { requeue_after: None } | Outcome::Drop => return Verdict::FORGET,
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
            Verdict {
                failed,
                again: Some((now.saturating_add(ticks(delay)), priority)),
            }
        };
        let slot = &mut self.slots[at as usize];
        let Some(finished) = slot.items.finish(&work.key, work.run, verdict, now, &self.hasher) else {
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
        self.settle(at);
        self.forget_if_over(at);
        current
    }

    /// When [`pop`](Self::pop) should be asked again although nothing else was called. `None`: not before another call.
    /// After a `pop` at `now` that returned `None` it is later than `now`.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.earliest().map(|at| self.base + Duration::from_nanos(at))
    }

    /// [`next_deadline`](Self::next_deadline) in the queue's own time.
    pub(super) fn earliest(&self) -> Option<Tick> {
        if self.at_limit() {
            return None;
        }
        self.timers.peek().map(|(at, _)| at)
    }

    /// Whether [`pop`](Self::pop) would return an item even if no time had passed.
    pub fn has_dispatchable(&self) -> bool {
        self.ring.head().is_some() && !self.at_limit()
    }

    fn at_limit(&self) -> bool {
        self.config
            .concurrency
            .is_some_and(|limit| self.running >= limit.max(1))
    }

    /// Lets time pass for the clusters that have something due. Returns whether some was left for the next call.
    fn advance(&mut self, now: Tick) -> bool {
        let mut budget = MATURE_AT_ONCE;
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
            let moved = slot.items.mature(now, budget);
            budget = budget.saturating_sub(moved.max(1));
            self.settle(at);
        }
        false
    }

    /// Brings the ring, the timers and the totals in line with a cluster that changed.
    fn settle(&mut self, at: u32) {
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
            None => {
                self.timers.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
