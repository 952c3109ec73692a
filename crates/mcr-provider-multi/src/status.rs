//! The status of children.

use std::{sync::Arc, time::SystemTime};

/// The status of a child of a [`MultiProvider`](crate::MultiProvider).
/// [`MultiHandle::status`](crate::MultiHandle::status) creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildStatus {
    /// The name of the child.
    pub name: Arc<str>,
    /// Whether the discovery of the child runs.
    pub state: ChildState,
    /// Whether the child has announced all its clusters since the discovery of all children began.
    pub synced: bool,
    /// How often the discovery of the child has failed and was restarted.
    pub restarts: u64,
    /// The error of the last failure. The child may have recovered since.
    pub last_error: Option<Arc<str>>,
    /// The number of announced clusters, including broken ones.
    pub clusters: usize,
    /// The number of held clusters: the child no longer announces them, but they stay because they are most of its
    /// clusters. See [`MultiHandle::release_held`](crate::MultiHandle::release_held).
    pub held: usize,
}

/// Whether the discovery of a child runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// No discovery runs, because the fleet has not started, has stopped, or pauses before a restart.
    Waiting,
    /// The discovery runs.
    Running,
    /// The discovery has failed, and the child has not announced all its clusters since. It is restarted after growing
    /// pauses.
    Failing {
        /// The error of the last failure.
        error: Arc<str>,
        /// The time of the first failure.
        since: SystemTime,
    },
}

impl ChildStatus {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            state: ChildState::Waiting,
            synced: false,
            restarts: 0,
            last_error: None,
            clusters: 0,
            held: 0,
        }
    }
}
