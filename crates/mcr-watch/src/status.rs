//! How a watch is doing.

use std::{sync::Arc, time::SystemTime};

use crate::WatchError;

/// How a watch is doing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WatchStatus {
    /// Whether a complete list has been read since the cluster was engaged. Stays true when the watch breaks
    /// later: the store then is old, not incomplete.
    pub synced: bool,
    /// What stands in the way at the moment.
    pub problem: Option<WatchProblem>,
    /// How many objects of lists and events were left out because they could not be read.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When something was last heard on this watch.
    pub last_event: Option<SystemTime>,
}

/// What stands in the way of a watch, and since when.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchProblem {
    /// What it is.
    pub error: Arc<WatchError>,
    /// When this kind of problem was first seen.
    pub since: SystemTime,
}

impl WatchStatus {
    #[doc(hidden)]
    pub fn listed(&mut self) {
        self.synced = true;
        self.lists += 1;
        self.problem = None;
        self.last_event = Some(SystemTime::now());
    }

    #[doc(hidden)]
    pub fn failed(&mut self, error: WatchError) {
        let same = self
            .problem
            .as_ref()
            .filter(|p| std::mem::discriminant(&*p.error) == std::mem::discriminant(&error));
        let since = same.map_or_else(SystemTime::now, |problem| problem.since);
        self.problem = Some(WatchProblem {
            error: Arc::new(error),
            since,
        });
    }
}
