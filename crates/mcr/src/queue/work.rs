//! A dispatched item and the outcome of its run.

use super::priority::Priority;
use std::time::Duration;

/// One dispatched item. When its run is over, the caller must call [`QueueCore::done`](super::QueueCore::done).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work<C, K, E = u64> {
    /// The cluster.
    pub cluster: C,
    /// The object in the cluster.
    pub key: K,
    /// The cluster's epoch when the run began.
    pub epoch: E,
    /// The highest priority of the adds that this run answers.
    pub priority: Priority,
    /// How many runs of the key failed in a row before this run; 0 the first time.
    pub attempt: u32,
    /// How long the item was ready before its dispatch. With debounce, the time counts from the add.
    pub queued_for: Duration,
    pub(super) run: u32,
    /// The slot of the cluster at dispatch.
    pub(super) slot: u32,
}

/// The result of a run, as the queue needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run succeeded; the queue forgets the back-off history of the key.
    Success {
        /// Run again after this time, as [`Priority::Initial`].
        requeue_after: Option<Duration>,
    },
    /// The run failed: run again after the back-off of the key.
    Retry,
    /// The run failed: run again after this time, chosen by the caller. Counts as a failure, as [`Retry`](Self::Retry) does.
    RetryAfter(Duration),
    /// Forget the key and its history. Adds that came during the run still count.
    Drop,
}
