//! What is told of children.

use std::{sync::Arc, time::SystemTime};

/// How a child of a [`MultiProvider`](crate::MultiProvider) is; made by
/// [`MultiHandle::status`](crate::MultiHandle::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its discovery runs.
    pub state: ChildState,
    /// Whether it has said everything since the discovery of all children began.
    pub synced: bool,
    /// How often its discovery failed and was started again.
    pub restarts: u64,
    /// Why it failed the last time, though it may have recovered since.
    pub last_error: Option<Arc<str>>,
    /// How many clusters of it are announced, broken ones too.
    pub clusters: usize,
    /// How many of them it no longer names but are kept, because they are most of its clusters; see
    /// [`MultiHandle::release_held`](crate::MultiHandle::release_held).
    pub held: usize,
}

/// Whether the discovery of a child runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// No discovery runs: the fleet has not started, has stopped, or pauses.
    Waiting,
    /// It runs.
    Running,
    /// It failed, and has not said everything again since. It is started again and again.
    Failing {
        /// Why it failed the last time.
        error: Arc<str>,
        /// When it began to fail.
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

    pub(crate) fn started(&mut self) {
        self.state = ChildState::Running;
        self.synced = false;
    }

    pub(crate) fn failed(&mut self, error: Arc<str>, now: SystemTime) {
        let since = match self.state {
            ChildState::Failing { since, .. } => since,
            _ => now,
        };
        self.restarts += 1;
        self.last_error = Some(error.clone());
        self.state = ChildState::Failing { error, since };
    }

    pub(crate) fn synced(&mut self) {
        self.synced = true;
        self.state = ChildState::Running;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn failing_lasts_from_the_first_failure_until_everything_is_said_again() {
        let mut status = ChildStatus::new("a".into());
        status.started();
        let (first, second) = (
            SystemTime::UNIX_EPOCH,
            SystemTime::UNIX_EPOCH + Duration::from_secs(9),
        );
        status.failed("no hub".into(), first);
        status.failed("still no hub".into(), second);
        let failing = ChildState::Failing {
            error: "still no hub".into(),
            since: first,
        };
        assert_eq!(status.state, failing);
        status.synced();
        assert_eq!(status.state, ChildState::Running);
        assert_eq!(
            (status.restarts, status.last_error.as_deref()),
            (2, Some("still no hub"))
        );
    }
}
