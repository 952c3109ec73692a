//! One key of a cluster: its state, its times, and the adds that wait for it.

use super::delay::{NEVER, Tick};
use super::list::Links;
use super::priority::Priority;

/// Further adds put a debounced add off for at most this many debounce times.
const DEBOUNCE_LIMIT: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the lanes.
    Queued,
    /// In the heap of delayed items.
    Delayed,
    /// Dispatched. The fields `since`, `quiet`, `due` and `added` hold the adds that came since.
    Running,
    /// Dispatched in an epoch that is over.
    Orphaned,
}

/// One key that is queued, delayed or running; other keys have no item. The item also holds the back-off history: a key
/// that failed is always delayed, queued or running until it succeeds or is dropped.
#[derive(Debug)]
pub(super) struct Item<K> {
    pub(super) key: K,
    /// Queued: the time of the earliest add. Otherwise: the time of the earliest pending add without delay, or [`NEVER`].
    pub(super) since: Tick,
    /// When the adds in `since` may run (later than the last of them only with debounce).
    pub(super) quiet: Tick,
    /// Not queued: the earliest time that an add with a delay asks for, or [`NEVER`].
    pub(super) due: Tick,
    pub(super) lane: Links,
    pub(super) age: Links,
    pub(super) attempt: u32,
    /// The number of the current run, so that a second completion of an earlier run is recognised.
    pub(super) run: u32,
    pub(super) state: State,
    pub(super) priority: Priority,
    /// Running: the highest priority of the adds that came since the dispatch.
    pub(super) added: Option<Priority>,
}

/// A call that adds a key.
#[derive(Clone, Copy)]
pub(super) struct Add {
    pub(super) priority: Priority,
    pub(super) now: Tick,
    /// When the key may run. `now` or earlier means at once (subject to `debounce`).
    pub(super) at: Tick,
    /// The debounce time; zero without debounce.
    pub(super) debounce: Tick,
}

impl<K> Item<K> {
    /// A new item without adds. The caller sets its state.
    pub(super) fn new(key: K, priority: Priority) -> Self {
        Self {
            key,
            since: NEVER,
            quiet: NEVER,
            due: NEVER,
            lane: Links::NONE,
            age: Links::NONE,
            attempt: 0,
            run: 0,
            state: State::Delayed,
            priority,
            added: None,
        }
    }

    /// Merges the times of an add. Returns when the pending adds without delay may run.
    pub(super) fn merge(&mut self, add: Add) -> Tick {
        if add.at > add.now {
            self.due = self.due.min(add.at);
        } else {
            self.since = self.since.min(add.now);
        }
        if self.since == NEVER {
            NEVER
        } else if add.at > add.now {
            self.quiet
        } else {
            let limit = self
                .since
                .saturating_add(add.debounce.saturating_mul(DEBOUNCE_LIMIT));
            self.quiet = add.now.saturating_add(add.debounce).min(limit);
            self.quiet
        }
    }
}
