//! Numbers about a queue: the items of one cluster now, and counters since the start.

use std::time::Duration;

/// The items and the state of one cluster at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Items that could run if their cluster could dispatch.
    pub ready: usize,
    /// Items whose delay has not ended, or ended while the cluster was gated or parked.
    pub delayed: usize,
    /// Runs of this epoch that are not done.
    pub running: usize,
    /// Runs of earlier epochs that are not done.
    pub orphaned: usize,
    /// Whether the gate is closed.
    pub gated: bool,
    /// Whether the cluster is parked.
    pub parked: bool,
    /// Whether the cluster is unparked and waits for its jittered release.
    pub releasing: bool,
    /// The waiting time of the item that has been ready longest.
    pub oldest_wait: Option<Duration>,
}

/// Counters of a queue since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Accepted adds.
    pub adds: u64,
    /// Accepted adds that the queue merged into an item that was pending.
    pub coalesced: u64,
    /// Adds that the queue refused because the cluster was not engaged.
    pub refused: u64,
    /// Dispatched items.
    pub dispatched: u64,
    /// Pending items that were dropped: their cluster was disengaged, or [`forget`](super::QueueCore::forget) was called.
    pub dropped: u64,
    /// Runs that ended with a retry.
    pub retries: u64,
}
