//! What a driver does next. Nothing in this module sends a request or waits.

use std::{collections::BTreeMap, mem::take, time::Duration};

use mcr_client::{
    EndpointNumber,
    internal::{Backoff, jitter},
};

use super::versions::Versions;
use crate::error::WatchError;

/// A watch that lasted longer ends a series of failures: the next failure starts with short pauses.
const PROVEN_AFTER: Duration = Duration::from_secs(10);

/// A watch that the server ends earlier is cut short. A driver that started the next one at once would ask in a tight
/// loop.
const CUT_SHORT_BEFORE: Duration = Duration::from_secs(1);

/// After this many failures in a row at one resource version the driver lists again. It would otherwise ask for ever for
/// an event that can't be converted, or at which a proxy cuts the watch off.
const STUCK_AFTER: u32 = 3;

/// The longest pause that a server can ask for. A server that asks for more is misconfigured, and nobody would find out
/// why a kind is not watched for a year.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause after a list or a store was too large. Each attempt transfers everything again, and a person who
/// deletes objects or raises a limit takes minutes.
pub(super) const TOO_LARGE_PAUSE: Duration = Duration::from_secs(300);

/// Where a watch continues: a resource version, and the endpoint that it belongs to.
#[derive(Debug)]
pub(super) struct Position {
    pub(super) endpoint: EndpointNumber,
    pub(super) resource_version: String,
}

/// Whether the driver lists or watches next.
#[derive(Debug, Default)]
enum State {
    /// The driver lists. Entered at the start, and whenever the position is of no use any more: after a 410, a response
    /// that can't be read, a version that went back, or repeated failures at one version; after a watch that was silent or
    /// left an object out; and when the list of `Interrupted` fails after it has brought objects.
    #[default]
    Unlisted,
    /// The driver watches from here, or lists if the cluster has moved to another endpoint. Entered after a complete list.
    Listed(Position),
    /// The driver lists, because its target has asked for a list during a watch. A list that fails before it `brought` an
    /// object leads back to `Listed`: the watch continues, and the clusters that did not ask notice nothing. After a list
    /// that brought objects the old watch would turn them back.
    Interrupted { at: Position, brought: bool },
}

/// What a watch has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Received {
    Nothing,
    Events,
    /// At least one bookmark: this server sends them, so a long silence means a dead connection.
    Bookmarks,
}

/// How a watch went.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWatch {
    pub(super) lasted: Duration,
    /// As set by [`WatchSettings::watch_timeout`](crate::WatchSettings::watch_timeout).
    pub(super) timeout: Duration,
    pub(super) received: Received,
    /// Whether an object was unreadable since the last complete list started.
    pub(super) left_out: bool,
}

impl EndedWatch {
    /// Whether the watch received nothing, not even a bookmark, in its whole life. There are servers whose watches stay
    /// dead if they started with nothing to watch. Only a list shows the difference.
    pub(super) fn was_silent(&self) -> bool {
        self.received == Received::Nothing && self.lasted >= self.timeout.mul_f64(0.8)
    }
}

/// What the driver does after a watch that was cut short.
#[derive(Debug)]
pub(super) struct CutShort {
    pub(super) pause: Duration,
    /// Whether to report it as a problem of the watch.
    pub(super) report: bool,
}

/// What the driver does after an error.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) pause: Duration,
    /// Whether to log the error as a warning.
    pub(super) warn: bool,
    /// Whether the interrupted watch continues, at once.
    pub(super) resume: bool,
}

/// How far a driver has come, and its failures since a watch last proved that things work.
pub(super) struct Progress {
    state: State,
    backoff: Backoff,
    /// How many watches in a row failed without a newer resource version.
    stuck: u32,
    cut_short: u32,
    /// Whether the objects of a list have been applied.
    holds_objects: bool,
    /// How often errors have occurred, by their reason.
    errors: BTreeMap<&'static str, u32>,
    pub(super) versions: Versions,
}

impl Progress {
    pub(super) fn new(retry_cap: Duration) -> Self {
        Self {
            state: State::Unlisted,
            backoff: Backoff::new(Duration::from_millis(500), retry_cap),
            stuck: 0,
            cut_short: 0,
            holds_objects: false,
            errors: BTreeMap::new(),
            versions: Versions::default(),
        }
    }

    /// The cluster is down. Its failures mean nothing for the time after: an API server that starts forbids everything
    /// for a moment. How often a cluster that comes and goes is dialled is up to its supervisor.
    pub(super) fn cluster_down(&mut self) {
        self.versions.unconfirmed = true;
        self.backoff.reset();
    }

    /// The resource version to watch from at this endpoint; none if the driver lists next.
    pub(super) fn watches_from(&self, endpoint: EndpointNumber) -> Option<&str> {
        match &self.state {
            State::Listed(at) if at.endpoint == endpoint => Some(&at.resource_version),
            _ => None,
        }
    }

    /// The target has asked for a list during a watch.
    pub(super) fn interrupt(&mut self) {
        self.state = match take(&mut self.state) {
            State::Listed(at) => State::Interrupted { at, brought: false },
            other => other,
        };
    }

    /// The objects of a list are applied from now on. This holds for the lists after it as well, until one has been applied: a
    /// move to another endpoint ends a list without an error.
    pub(super) fn list_brings_objects(&mut self) {
        self.holds_objects = true;
        if let State::Interrupted { brought, .. } = &mut self.state {
            *brought = true;
        }
    }

    /// Whether objects could go back in time.
    pub(super) fn holds_objects(&self) -> bool {
        self.holds_objects
    }

    pub(super) fn listed(&mut self, at: Position) {
        self.versions.listed(&at.resource_version);
        self.state = State::Listed(at);
    }

    /// The watch has received a resource version. An empty one is ignored: a watch from there would start anywhere, and
    /// miss what was deleted before.
    ///
    /// # Errors
    /// If it is lower than the one before.
    pub(super) fn advance(&mut self, resource_version: String) -> Result<(), WatchError> {
        if resource_version.is_empty() {
            return Ok(());
        }
        self.stuck = 0;
        if let State::Listed(at) = &mut self.state {
            self.versions.compare(&at.resource_version, &resource_version)?;
            at.resource_version = resource_version;
        }
        Ok(())
    }

    /// The API server has shown its newest version.
    ///
    /// # Errors
    /// If it is lower than the one that the watch has reached.
    pub(super) fn confirm(&mut self, newest: &str) -> Result<(), WatchError> {
        if let State::Listed(at) = &self.state {
            self.versions.compare(&at.resource_version, newest)?;
        }
        self.versions.unconfirmed = false;
        Ok(())
    }

    /// A watch that the server had accepted or refused has ended. An error must also be passed to [`failed`](Self::failed).
    pub(super) fn watch_ended(
        &mut self,
        ended: EndedWatch,
        result: &Result<(), WatchError>,
    ) -> Option<CutShort> {
        if ended.lasted > PROVEN_AFTER {
            self.backoff.reset();
            self.errors.clear();
            (self.stuck, self.cut_short) = (0, 0);
        }
        // No event reports that an object is readable again, or what an object without a name kept from being deleted.
        if ended.was_silent() || ended.left_out {
            self.state = State::Unlisted;
        }
        match result {
            Ok(()) if ended.lasted < CUT_SHORT_BEFORE => {
                self.cut_short = self.cut_short.saturating_add(1);
                return Some(CutShort {
                    pause: self.backoff.pause(),
                    report: self.cut_short >= STUCK_AFTER,
                });
            }
            Err(WatchError::Api { .. } | WatchError::Transport(_)) => self.stuck += 1,
            _ => {}
        }
        None
    }

    /// A list or a watch has failed.
    pub(super) fn failed(&mut self, error: &WatchError) -> Retry {
        self.versions.unconfirmed = true;
        let expired = matches!(error, WatchError::Expired | WatchError::WentBack { .. });
        let stuck = self.stuck >= STUCK_AFTER;
        if stuck {
            self.stuck = 0;
        }
        let unreadable = matches!(error, WatchError::Malformed(_) | WatchError::Foreign(_));
        let useless = stuck || expired || unreadable || error.is_too_large();
        let (state, resume) = match take(&mut self.state) {
            State::Listed(at) if !useless => (State::Listed(at), false),
            State::Interrupted { at, brought: false } if !expired => (State::Listed(at), true),
            _ => (State::Unlisted, false),
        };
        self.state = state;
        let times = self.errors.entry(error.reason()).or_default();
        *times = times.saturating_add(1);
        let times = *times;
        let mut pause = self.backoff.pause();
        match error {
            WatchError::TooManyRequests {
                retry_after: Some(asked),
            }
            | WatchError::Api {
                retry_after: Some(asked),
                ..
            } => pause = pause.max((*asked).min(LONGEST_PAUSE)),
            // A list cures it. Only a repetition may be a loop.
            _ if expired && times == 1 => pause = jitter(Duration::from_millis(100)),
            // In addition, so that kinds that failed together are not all tried again together.
            error if error.is_too_large() => pause += TOO_LARGE_PAUSE,
            _ => {}
        }
        // One warning for each problem: a thousand dead watches must not fill the log, and a watch that starts and fails
        // each time is one problem. A version that expires is normal unless that never ends.
        let normal = matches!(error, WatchError::Expired);
        let warn = times == if normal { 3 } else { 1 };
        Retry { pause, warn, resume }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn listed() -> Progress {
        let mut progress = Progress::new(15 * SECOND);
        let resource_version = "7".into();
        progress.listed(Position {
            endpoint: EndpointNumber(1),
            resource_version,
        });
        progress
    }

    fn ended(lasted: Duration) -> EndedWatch {
        EndedWatch {
            lasted,
            timeout: 290 * SECOND,
            received: Received::Events,
            left_out: false,
        }
    }

    fn broken() -> WatchError {
        WatchError::Transport("broken".into())
    }

    /// Where the driver watches next after an error, and whether it resumes an interrupted watch.
    fn after(mut progress: Progress, error: &WatchError) -> (Option<String>, bool) {
        let resume = progress.failed(error).resume;
        (
            progress.watches_from(EndpointNumber(1)).map(str::to_owned),
            resume,
        )
    }

    /// A list shows whether it has become smaller. The events of a watch would each exceed the limit again, and hide the
    /// deletions behind them.
    #[test]
    fn a_kind_that_is_too_large_is_listed_again_after_minutes() {
        let (bytes, limit) = (2 << 20, 1 << 20);
        let list = WatchError::ListTooLarge { bytes, limit };
        let held = WatchError::HoldsTooMuch { bytes, limit };
        let endless = WatchError::ListWithoutEnd {
            pages: 1,
            objects: 2,
            took: SECOND,
        };
        for error in [list, held, endless] {
            assert_eq!(after(listed(), &error), (None, false));
            let pauses = [(); 9].map(|()| listed().failed(&error).pause);
            assert!(
                pauses.iter().all(|pause| (300..=315).contains(&pause.as_secs())),
                "{pauses:?}"
            );
            assert!(!error.concerns_cluster() && !error.is_blocked());
        }
        let spent = WatchError::ListBudgetSpent { bytes, limit };
        assert!(listed().failed(&spent).pause <= SECOND && !spent.concerns_cluster());
    }

    #[test]
    fn an_interrupted_watch_continues_only_if_the_list_brought_nothing() {
        let interrupted = |objects| {
            let mut progress = listed();
            progress.interrupt();
            if objects {
                progress.list_brings_objects();
            }
            assert_eq!(progress.watches_from(EndpointNumber(1)), None);
            progress
        };
        for error in [broken(), WatchError::Malformed("?".into())] {
            assert_eq!(after(interrupted(false), &error), (Some("7".into()), true));
            assert_eq!(after(interrupted(true), &error), (None, false));
        }
        assert_eq!(after(interrupted(false), &WatchError::Expired), (None, false));
    }

    #[test]
    fn a_silent_watch_and_one_that_left_an_object_out_lead_to_a_list() {
        let (received, left_out) = (Received::Nothing, true);
        let (long, short) = (ended(290 * SECOND), ended(200 * SECOND));
        for (ended, lists) in [
            (long, false),
            (EndedWatch { received, ..long }, true),
            (EndedWatch { received, ..short }, false),
            (EndedWatch { left_out, ..short }, true),
        ] {
            let mut progress = listed();
            assert!(progress.watch_ended(ended, &Ok(())).is_none());
            assert_eq!(
                progress.watches_from(EndpointNumber(1)).is_none(),
                lists,
                "{ended:?}"
            );
        }
    }

    #[test]
    fn a_problem_is_one_warning_and_a_server_can_ask_for_a_minute() {
        let mut progress = listed();
        assert_eq!(
            [(); 3].map(|()| progress.failed(&broken()).warn),
            [true, false, false]
        );
        let expired = [(); 4].map(|()| progress.failed(&WatchError::Expired));
        assert_eq!(
            expired.each_ref().map(|retry| retry.warn),
            [false, false, true, false]
        );
        assert!(expired[0].pause <= Duration::from_millis(100) && expired[1].pause >= SECOND);
        for (asked, pause) in [(50, 50), (1_000_000, 60)] {
            let retry_after = Some(asked * SECOND);
            let message = String::new();
            for error in [
                WatchError::TooManyRequests { retry_after },
                WatchError::Api {
                    code: 503,
                    message,
                    retry_after,
                },
            ] {
                assert_eq!(progress.failed(&error).pause, pause * SECOND, "{error}");
            }
        }
        progress.watch_ended(ended(11 * SECOND), &Ok(()));
        let retry = progress.failed(&broken());
        assert!(retry.warn && retry.pause <= Duration::from_millis(500));
    }
}
