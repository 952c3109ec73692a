//! The status of a watch.

use std::{mem::discriminant, sync::Arc, time::SystemTime};

use mcr_access::internal::rfc3339_option;

use crate::error::WatchError;

/// The status of a watch.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WatchStatus {
    /// Whether a complete list has been read since the cluster was engaged. Stays true when the watch breaks
    /// later: the store then is old, not incomplete.
    pub synced: bool,
    /// Why the kind is not listed or watched at the moment.
    pub problem: Option<WatchProblem>,
    /// How many objects of lists and events were left out because they could not be read.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When the watch last received something.
    pub last_event: Option<SystemTime>,
}

/// Why a kind is not listed or watched, and since when.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchProblem {
    /// The latest error.
    pub error: Arc<WatchError>,
    /// When errors of this kind began.
    pub since: SystemTime,
}

impl WatchProblem {
    /// A problem that begins now.
    pub(crate) fn new(error: WatchError) -> Self {
        Self {
            error: Arc::new(error),
            since: SystemTime::now(),
        }
    }
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
        let problem = self.problem.as_ref();
        let same = problem.filter(|problem| discriminant(&*problem.error) == discriminant(&error));
        let since = same.map_or_else(SystemTime::now, |problem| problem.since);
        self.problem = Some(WatchProblem {
            error: Arc::new(error),
            since,
        });
    }
}

/// The status of one watch of a cluster, as data.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindStatus {
    /// The request of the watch, as text: the kind and its selectors.
    pub watch: String,
    /// The kind: `<plural>` or `<plural>.<group>`.
    pub kind: String,
    /// Whether a complete list has been read.
    pub synced: bool,
    /// The number of objects in the store.
    pub objects: usize,
    /// The number of bytes of JSON in the store.
    pub bytes: usize,
    /// The memory that the objects in the store take, in bytes. [`WatchSettings::held_bytes`](crate::WatchSettings::held_bytes)
    /// can limit it.
    pub held_bytes: usize,
    /// The number of objects that are missing in the store because they could not be read.
    pub skipped: u64,
    /// The number of complete lists that have been read.
    pub lists: u64,
    /// When anything was last received on this watch.
    #[serde(serialize_with = "rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// The current problem of the watch, as text.
    pub problem: Option<String>,
    /// Whether a change in the cluster is needed before the kind can be listed: it is forbidden, not served, or
    /// withheld from the cluster.
    pub blocked: bool,
}
