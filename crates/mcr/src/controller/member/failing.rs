//! The requests of one cluster that fail now.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

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
pub(crate) struct FailingRequests {
    /// The number of requests in `state`. A success takes no lock while it is zero.
    count: AtomicUsize,
    /// `None` while nothing fails.
    state: Mutex<Option<Box<State>>>,
}

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
        let mut state = self.state.lock();
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
        self.count.store(state.requests.len(), Ordering::Relaxed);
        line
    }

    /// Removes a request that succeeded or was dropped.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        // The queue orders the runs of a key, so a run sees the count that an earlier run of its key has stored.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let Some(failing) = state.as_mut() else {
            return;
        };
        failing.requests.remove(key);
        self.count.store(failing.requests.len(), Ordering::Relaxed);
        if failing.requests.is_empty() {
            *state = None;
        }
    }

    /// The number of failing requests, and the worst of them, at most [`MOST_LISTED`], in no order.
    pub(crate) fn worst(&self) -> (usize, Vec<(ObjectKey, Failing)>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return (0, Vec::new());
        }
        let state = self.state.lock();
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
    use std::{collections::BTreeMap, sync::mpsc, thread, time::Duration};

    use super::*;

    fn key(name: impl std::fmt::Display) -> ObjectKey {
        ObjectKey::namespaced("ns", name.to_string())
    }

    fn terminal(text: &str) -> Failure {
        Failure::of(&crate::terminal::TerminalError::new(text))
    }

    fn at(second: u64) -> (Instant, SystemTime) {
        (
            Instant::now(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(second),
        )
    }

    /// All sequences of six ends of two requests, compared with a map.
    #[test]
    fn it_has_exactly_the_requests_whose_last_end_was_a_failure() {
        const ENDS: usize = 6;
        for sequence in 0..ENDS.pow(6) {
            let failing = FailingRequests::default();
            let mut model: BTreeMap<ObjectKey, Failing> = BTreeMap::new();
            let mut rest = sequence;
            for second in 0..6 {
                let (name, end) = (rest % 2, rest / 2 % 3);
                rest /= ENDS;
                let key = key(name);
                if end == 0 {
                    failing.remove(&key);
                    model.remove(&key);
                    continue;
                }
                let since = model.get(&key).map_or(at(second).1, |known| known.since);
                let attempt = model.get(&key).map_or(0, |known| known.attempt) + 1;
                let is_retried = end == 1;
                let failure = if is_retried {
                    Failure::new("no")
                } else {
                    terminal("never")
                };
                let line = failing.add(&key, &failure, attempt, is_retried, at(second));
                if !is_retried {
                    let is_known = model.get(&key).is_some_and(|known| !known.is_retried);
                    assert_eq!(
                        line,
                        (!is_known).then_some(0),
                        "a terminal error is logged once: {sequence}"
                    );
                }
                let error = failure.text.as_str().into();
                model.insert(
                    key,
                    Failing {
                        attempt,
                        error,
                        since,
                        is_retried,
                    },
                );
            }
            let (count, worst) = failing.worst();
            assert_eq!(count, model.len(), "{sequence}");
            assert_eq!(BTreeMap::from_iter(worst), model, "{sequence}");
            // Where nothing fails, nothing is kept.
            assert_eq!(failing.state.lock().is_none(), model.is_empty(), "{sequence}");
        }
    }

    #[test]
    fn the_worst_are_those_with_the_most_attempts() {
        let failing = FailingRequests::default();
        for number in 0..1_000 {
            // A permutation of the numbers, so that neither the first nor the last ones are the worst.
            let attempt = number * 7 % 1_000;
            failing.add(&key(number), &Failure::new("no"), attempt, true, at(0));
        }
        let (count, worst) = failing.worst();
        let mut attempts: Vec<u32> = worst.iter().map(|(_, failing)| failing.attempt).collect();
        attempts.sort_unstable();
        assert_eq!((count, attempts), (1_000, Vec::from_iter(900..1_000)));
    }

    #[test]
    fn requests_that_are_not_retried_are_bounded_and_those_that_are_retried_are_all_counted() {
        let failing = FailingRequests::default();
        for number in 0..MOST_NOT_RETRIED + 5 {
            assert_eq!(
                failing.add(&key(number), &terminal("no"), 1, false, at(0)),
                Some(0)
            );
        }
        assert_eq!(failing.worst().0, MOST_NOT_RETRIED);
        failing.add(&key("retried"), &Failure::new("no"), 1, true, at(0));
        assert_eq!(failing.worst().0, MOST_NOT_RETRIED + 1);
    }

    /// Fails if a success takes the lock, which the test holds.
    #[test]
    fn a_success_where_nothing_fails_takes_no_lock() {
        let failing = Arc::new(FailingRequests::default());
        let held = failing.state.lock();
        let (sender, ended) = mpsc::channel();
        let other = failing.clone();
        let thread = thread::spawn(move || {
            other.remove(&key("a"));
            let _ = sender.send(());
        });
        let ended = ended.recv_timeout(Duration::from_secs(10));
        drop(held);
        thread.join().unwrap();
        ended.unwrap();
    }

    #[test]
    fn times_read_as_those_of_clusters() {
        let request = FailingRequest {
            object: "ns/a".into(),
            attempt: 3,
            error: "403 Forbidden: no".into(),
            since: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
            retry_at: None,
        };
        let json = r#"{"object":"ns/a","attempt":3,"error":"403 Forbidden: no","since":"1970-01-01T00:00:01.500Z","retryAt":null}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
    }
}
