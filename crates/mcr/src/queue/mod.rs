//! The two-level fair work queue: which request of which cluster runs next.
//!
//! Generic over the cluster's name `C` and the key `K` of an object inside a cluster; the unit of work is the pair. It
//! decides and does nothing else: [`QueueCore`] is a data structure without clock or lock, [`FairQueue`] the same with
//! an async [`next`](FairQueue::next).
//!
//! # A key
//! is queued, delayed, running, or unknown; wishes are merged per (cluster, key), and **a pair never runs twice at once**.
//! - The earlier wish wins: [`add`](QueueCore::add) makes a delayed key ready now, [`add_after`](QueueCore::add_after)
//!   never postpones. One run answers all wishes that came before it began.
//! - A wish for a running key is kept and queued when the run is done, at once and with the priority wished, whatever the
//!   run returned. A failure counts all the same: [`Work::attempt`] and the back-off go on from there.
//! - A run carries the highest priority wished, and [`Work::queued_for`] counts from the earliest wish (for a delayed
//!   one: from when it fell due).
//! - [`Outcome::Retry`] waits by [`Backoff`], in class [`Retry`](Priority::Retry). A planned requeue
//!   ([`Outcome::Success`] with a time) is a resync, class [`Initial`](Priority::Initial).
//! - Under [debounce](QueueConfig::debounce) an `add` becomes ready when that time passed without another `add` of the
//!   same key, but at the latest 10 debounce times after the first one: a key that changes all the time still runs. Items
//!   that are ready already, delays and retries are not debounced.
//!
//! # Order inside a cluster
//! Classes share a cluster's dispatches 8 : 2 : 1 ([`Live`](Priority::Live), [`Initial`](Priority::Initial),
//! [`Retry`](Priority::Retry)); each is first in, first out, and an unused share goes to the others. A promoted item joins
//! the end of its new class. On top of it, every 4th dispatch goes to the item that has been ready longest, once that is
//! longer than [`QueueConfig::age_after`]. So nothing waits for ever:
//! - The first item of a class is among the next 28 dispatches of its cluster (two rounds of 11, and the aged ones).
//! - An item that has been ready for `age_after`, while `m` items still queued became ready before it, is among the
//!   next `4 (m + 1)` dispatches of its cluster, whatever arrives or is promoted meanwhile.
//!
//! # Order among clusters
//! Weighted round robin. A cluster takes part only while it can dispatch: engaged, gate open, not parked, below its limit,
//! with a ready item. Others cost nothing, not even a look. A cluster that joins goes to the end, so with
//! active clusters of weights `w1..wc` each is served within `w1 + .. + wc` dispatches, however much the others have.
//!
//! # Epochs
//! A cluster is [engaged](QueueCore::engage) with an epoch. [Disengaging](QueueCore::disengage) drops what waits and
//! orphans what runs: the outcome of an orphan is ignored. A key whose orphan is not done does not run in the next epoch
//! either; wishes for it wait. Orphans count in the global limit, since they do use its resources, and not in their
//! cluster's, or hung runs of the old cluster would block the new one.
//!
//! # Costs
//! Well under a microsecond per call at 100,000 items, whatever the number of clusters; 80 to 160 bytes per waiting item
//! (vectors double), 28 more for a delayed one, and the key's own heap; 376 bytes per engaged cluster. What is not waiting, running or engaged holds nothing.
//! Delays are kept up to [`MAX_DELAY`]; longer ones are shortened to it.

mod backoff;
mod core;
mod delay;
mod handle;
mod items;
mod lanes;
mod list;

pub use self::backoff::Backoff;
pub use self::core::{MAX_DELAY, QueueCore};
pub use self::handle::FairQueue;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Why an item is in the queue, and so how urgent it is. Ordered: `Live` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// It failed, or asked to be tried again. Weight 1.
    Retry = 0,
    /// From a first listing or a resync: probably nothing changed. Weight 2.
    Initial = 1,
    /// Something changed just now. Weight 8.
    Live = 2,
}

impl Priority {
    /// Every class, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Live, Self::Initial, Self::Retry];

    const WEIGHTS: [u8; 3] = [1, 2, 8];

    /// Its share of a cluster's dispatches, relative to the other classes.
    pub fn weight(self) -> u8 {
        Self::WEIGHTS[self as usize]
    }
}

/// One item to run. [`QueueCore::done`] must be told when the run is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work<C, K> {
    /// The cluster.
    pub cluster: C,
    /// The object in the cluster.
    pub key: K,
    /// The cluster's epoch when the run began.
    pub epoch: u64,
    /// The highest priority that was wished.
    pub priority: Priority,
    /// How often the key failed in a row before this run; 0 the first time.
    pub attempt: u32,
    /// How long the item was ready (under debounce: wished) before it was dispatched.
    pub queued_for: Duration,
    run: u32,
    /// Where its cluster was then.
    slot: u32,
}

/// What a run asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It went well; the back-off history is forgotten.
    Success {
        /// Run again after this time, as [`Priority::Initial`].
        requeue_after: Option<Duration>,
    },
    /// It failed: run again after the key's back-off.
    Retry,
    /// It failed: run again after this time, chosen by the caller. Counts as a failure, as [`Retry`](Self::Retry) does.
    RetryAfter(Duration),
    /// Forget the key and its history (wishes that came during the run are honoured).
    Drop,
}

/// How a queue behaves. Start from [`default`](Self::default) and chain what differs.
///
/// ```
/// use mcr::queue::QueueConfig;
/// use std::time::Duration;
///
/// let config = QueueConfig::default().concurrency(64).cluster_concurrency(8).debounce(Duration::from_millis(50));
/// assert_eq!(config.concurrency, Some(64));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// How many items run at once at most (zero counts as 1). Default: unlimited.
    pub concurrency: Option<usize>,
    /// How many items of one cluster run at once at most (zero counts as 1). Default: unlimited.
    pub cluster_concurrency: Option<usize>,
    /// The quiet time before an added item is ready. Default: none.
    pub debounce: Option<Duration>,
    /// Whether the gate of a newly engaged cluster is closed. Default: no.
    pub start_gated: bool,
    /// How long an item is ready before it counts as aged. Default 10 s.
    pub age_after: Duration,
    /// The delays after failures.
    pub backoff: Backoff,
    /// Seeds the jitter. Default: at random.
    pub seed: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            concurrency: None,
            cluster_concurrency: None,
            debounce: None,
            start_gated: false,
            age_after: Duration::from_secs(10),
            backoff: Backoff::default(),
            // std's hash keys are the randomness that is there without another dependency.
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl QueueConfig {
    /// Sets [`concurrency`](Self::concurrency).
    pub fn concurrency(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.concurrency = limit.into();
        self
    }

    /// Sets [`cluster_concurrency`](Self::cluster_concurrency).
    pub fn cluster_concurrency(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.cluster_concurrency = limit.into();
        self
    }

    /// Sets [`debounce`](Self::debounce).
    pub fn debounce(mut self, quiet: impl Into<Option<Duration>>) -> Self {
        self.debounce = quiet.into();
        self
    }

    /// Sets [`start_gated`](Self::start_gated).
    pub fn start_gated(mut self, gated: bool) -> Self {
        self.start_gated = gated;
        self
    }

    /// Sets [`age_after`](Self::age_after).
    pub fn age_after(mut self, age: Duration) -> Self {
        self.age_after = age;
        self
    }

    /// Sets [`backoff`](Self::backoff).
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`seed`](Self::seed).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// What there is of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Items that could run, were the cluster free to.
    pub ready: usize,
    /// Items whose time has not come (or has while the cluster was gated or parked).
    pub delayed: usize,
    /// Runs of this epoch that are not done.
    pub running: usize,
    /// Runs of earlier epochs that are not done.
    pub orphaned: usize,
    /// The gate is closed.
    pub gated: bool,
    /// The cluster is parked.
    pub parked: bool,
    /// The cluster is unparked and waits for its jittered release.
    pub releasing: bool,
    /// How long the item has waited that has been ready longest.
    pub oldest_wait: Option<Duration>,
}

/// What a queue did since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Wishes accepted.
    pub adds: u64,
    /// Accepted wishes that were merged into one that was pending.
    pub coalesced: u64,
    /// Wishes refused because the cluster was not engaged.
    pub refused: u64,
    /// Items handed out.
    pub dispatched: u64,
    /// Pending items dropped by disengaging.
    pub dropped: u64,
    /// Runs that ended with a retry.
    pub retries: u64,
}
