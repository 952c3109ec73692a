//! Counters of a controller, and its histograms.

use parking_lot::Mutex;

use super::{histogram::Histogram, running::Runs};

/// The counters of a controller since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerCounts {
    /// Reconciles that ended with any result; aborted ones are not included.
    pub reconciles: u64,
    /// Reconciles that succeeded.
    pub successes: u64,
    /// Reconciles that returned an error; terminal errors, panics and timeouts are not included.
    pub errors: u64,
    /// Reconciles that returned a [`TerminalError`](crate::TerminalError), which are not retried.
    pub terminal: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that took longer than the timeout of the controller.
    pub timeouts: u64,
    /// Reconciles that were aborted because they did not end in time after their cluster left.
    pub aborted: u64,
    /// Reconciles without a result: their cluster left meanwhile, or the object can't be decoded.
    pub dropped: u64,
    /// Reconciles that are tried again, after the back-off or after the time that their error policy chose.
    pub retries: u64,
    /// Requests that were added to the queue.
    pub requested: u64,
    /// Requests that were added while the same request was waiting already.
    pub coalesced: u64,
    /// Objects that could not be decoded, each counted once per change.
    pub undecodable: u64,
    /// Panics of mappers, predicates, selectors and other functions that were given to the controller.
    pub callback_panics: u64,
    /// Requests that were dropped: the controller does not select their cluster, or too many requests were waiting for
    /// clusters that had not joined.
    pub misdirected: u64,
    /// Requests that were not kept because too many were waiting in a cluster where nothing is dispatched: its gate is closed, it is
    /// unreachable, or this process is a standby. Deletions of objects that no reconcile can have seen are included.
    pub overflowed: u64,
}

/// The counters behind [`ControllerCounts`], and the measurements of reconciles.
#[derive(Default)]
pub(crate) struct Counters {
    /// Without those that the queue counts.
    counts: Mutex<ControllerCounts>,
    pub(crate) runs: Runs,
    /// How long reconciles took; aborted ones are not included.
    pub(crate) durations: Histogram,
    /// How long requests were ready before their dispatch.
    pub(crate) waits: Histogram,
}

impl Counters {
    pub(crate) fn add(&self, change: impl FnOnce(&mut ControllerCounts)) {
        change(&mut self.counts.lock());
    }

    pub(crate) fn read(&self, queue: &crate::queue::Counters) -> ControllerCounts {
        ControllerCounts {
            retries: queue.retries,
            requested: queue.adds,
            coalesced: queue.coalesced,
            ..*self.counts.lock()
        }
    }
}
