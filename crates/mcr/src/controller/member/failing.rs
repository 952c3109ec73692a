//! The requests of one cluster that fail now.

use std::{cmp::Reverse, collections::HashMap, sync::Arc, time::SystemTime};

use mcr_core::{
    ObjectKey,
    internal::{rfc3339, rfc3339_option},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::damping::Damping;
use crate::failure::Failure;

/// The most failing requests in the status of a controller, in all clusters together.
pub(crate) const MOST_LISTED: usize = 100;

/// The most requests of a cluster that are listed although they are not retried. Others are in the queue, too.
const MOST_NOT_RETRIED: usize = 10_000;

/// A request whose last reconcile failed.
///
/// It is listed until a reconcile succeeds, or until the request is dropped because its cluster leaves the controller.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FailingRequest {
    /// The object: `namespace/name`, or `name`.
    pub object: String,
    /// How many reconciles failed in a row. The next one has this number as its [`attempt`](crate::Request::attempt). After a
    /// failure that is not retried, the numbers begin again with 1.
    pub attempt: u32,
    /// The last error and its causes in one line of at most 300 characters. A response of an API server is `403 Forbidden: message`.
    /// Control and format characters are escaped.
    pub error: String,
    /// When the first of these reconciles failed.
    #[serde(serialize_with = "rfc3339")]
    pub since: SystemTime,
    /// When the request may run again; now for a request that is ready or running. `None` if it is not
    /// retried until its object changes.
    #[serde(serialize_with = "rfc3339_option")]
    pub retry_at: Option<SystemTime>,
}

/// A failing request, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) attempt: u32,
    pub(crate) error: Arc<str>,
    pub(crate) since: SystemTime,
    pub(crate) is_retried: bool,
}

impl Failing {
    /// Orders failing requests: the most attempts first, then the earliest.
    pub(crate) fn rank(&self) -> (Reverse<u32>, SystemTime) {
        (Reverse(self.attempt), self.since)
    }
}

/// The failing requests of a member, and which of their failures are logged.
#[derive(Debug, Default)]
pub(crate) struct FailingRequests(
    /// `None` while nothing fails.
    Mutex<Option<Box<State>>>,
);

#[derive(Debug, Default)]
struct State {
    requests: HashMap<ObjectKey, Failing>,
    damping: Damping,
}

impl FailingRequests {
    /// Records a failure. `attempt` counts the failures in a row, this one included. Returns `None` if the failure is not
    /// logged, otherwise how many equal ones were not logged since the last line.
    ///
    /// Must be called before the queue may start the same key again, as [`remove`](Self::remove).
    pub(crate) fn add(
        &self,
        key: &ObjectKey,
        failure: &Failure,
        attempt: u32,
        is_retried: bool,
        now: (Instant, SystemTime),
    ) -> Option<u64> {
        let mut state = self.0.lock();
        let state: &mut State = state.get_or_insert_default();
        let known = state.requests.get(key);
        let line = if failure.terminal {
            let is_new = known.is_none_or(|known| known.is_retried || *known.error != *failure.text);
            is_new.then_some(0)
        } else {
            state.damping.note(&failure.class_without(key), now.0)
        };
        if known.is_some() || is_retried || state.requests.len() < MOST_NOT_RETRIED {
            let since = known.map_or(now.1, |known| known.since);
            let error = failure.text.as_str().into();
            let failing = Failing {
                attempt,
                error,
                since,
                is_retried,
            };
            state.requests.insert(key.clone(), failing);
        }
        line
    }

    /// Removes a request that succeeded or was dropped.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        let mut state = self.0.lock();
        if let Some(failing) = &mut *state {
            failing.requests.remove(key);
            if failing.requests.is_empty() {
                *state = None;
            }
        }
    }

    /// The number of failing requests, and the worst of them, at most [`MOST_LISTED`], in no order.
    pub(crate) fn worst(&self) -> (usize, Vec<(ObjectKey, Failing)>) {
        let state = self.0.lock();
        let mut all: Vec<_> = state.iter().flat_map(|state| &state.requests).collect();
        let count = all.len();
        if count > MOST_LISTED {
            all.select_nth_unstable_by_key(MOST_LISTED, |(key, failing)| (failing.rank(), *key));
            all.truncate(MOST_LISTED);
        }
        let worst = all
            .into_iter()
            .map(|(key, failing)| (key.clone(), failing.clone()));
        (count, worst.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_are_listed_and_requests_that_are_not_retried_are_bounded() {
        let (failing, now) = (FailingRequests::default(), (Instant::now(), SystemTime::now()));
        let add = |failing: &FailingRequests, number: u32, attempt, is_retried| {
            let key = ObjectKey::namespaced("ns", number.to_string());
            failing.add(&key, &Failure::new("no"), attempt, is_retried, now);
        };
        for number in 0..1_000 {
            // A permutation of the numbers, so that neither the first nor the last ones are the worst.
            add(&failing, number, number * 7 % 1_000, true);
        }
        let (count, worst) = failing.worst();
        let mut attempts: Vec<u32> = worst.iter().map(|(_, failing)| failing.attempt).collect();
        attempts.sort_unstable();
        assert_eq!((count, attempts), (1_000, Vec::from_iter(900..1_000)));

        let ended = FailingRequests::default();
        (0..10_005).for_each(|number| add(&ended, number, 1, false));
        assert_eq!(ended.worst().0, MOST_NOT_RETRIED);
        add(&ended, 20_000, 1, true);
        assert_eq!(ended.worst().0, MOST_NOT_RETRIED + 1);
    }
}
