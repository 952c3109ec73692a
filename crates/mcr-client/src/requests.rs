//! Whose turn it is to be asked, and when. No I/O, no clock of its own.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::backoff::Backoff;
pub use mcr_access::internal::Ticket;
use mcr_access::internal::{Line, Schedule};

/// The time between two attempts, however many objects a hub refuses.
const INTERVAL: Duration = Duration::from_millis(250);

/// A request to send.
#[derive(Debug)]
pub struct Request<K> {
    /// What it asks for.
    pub key: K,
    /// Its number, for [`Requests::ended`].
    pub ticket: Ticket,
    /// Whether the last attempt failed.
    pub again: bool,
    /// Cancelled when nobody needs the answer any more.
    pub stop: CancellationToken,
}

/// The requests of a provider: for each key at most one, a limited number at once, and after a failure another one.
///
/// Keys whose last request failed come after all others, and take at most half of the places. So servers that do not answer, which
/// keep a place until the deadline, delay nobody else.
///
/// With [`one_cause`](Self::one_cause), one server answers for all keys, and most of its failures have one cause, such as a right
/// that is missing. Then all failed keys share one pace: four attempts a second, in the order of their failures. One that succeeds
/// is a sign that the cause is gone; then the two others that have waited longest are tried at once, and so on. So a key that fails
/// for a cause of its own never takes the turn of others.
#[derive(Debug)]
pub struct Requests<K> {
    pauses: (Duration, Duration),
    one_cause: bool,
    /// Whether keys that were never answered come after those that were.
    new_ones_last: bool,
    next_attempt: Option<Instant>,
    quiet_until: Option<Instant>,
    states: BTreeMap<K, State>,
    schedule: Schedule<K>,
}

#[derive(Debug)]
struct State {
    /// When the next request is due, if one is planned.
    planned: Option<Instant>,
    /// Dropping the guard cancels the request.
    running: Option<(Ticket, DropGuard)>,
    /// When the last request failed. None if it succeeded, or there was none.
    failed: Option<Instant>,
    /// Whether a request was ever answered.
    was_answered: bool,
    backoff: Backoff,
}

impl<K: Ord + Clone> Requests<K> {
    /// At most so many requests at once; 0 count as 1. The pauses after failures grow from the first to the longest one.
    pub fn new(at_once: usize, pauses: (Duration, Duration)) -> Self {
        Self {
            pauses,
            one_cause: false,
            new_ones_last: false,
            next_attempt: None,
            quiet_until: None,
            states: BTreeMap::new(),
            schedule: Schedule::new(at_once),
        }
    }

    /// Each key has a server of its own, which may hang. A request that turns out to [wait](Self::slow) takes one of so many further
    /// places, and keys that were answered come before new ones.
    #[must_use]
    pub fn with_slow(mut self, at_once: usize, slow_at_once: usize) -> Self {
        self.schedule = Schedule::with_slow(at_once, slow_at_once);
        self.new_ones_last = true;
        self
    }

    /// One server answers for all keys.
    #[must_use]
    pub fn one_cause(mut self) -> Self {
        self.one_cause = true;
        self
    }

    /// Plans the next request for a key. Cancels one that runs, and replaces one that is planned.
    pub fn plan(&mut self, key: &K, at: Instant) {
        let pauses = self.pauses;
        let state = self.states.entry(key.clone()).or_insert_with(|| State {
            planned: None,
            running: None,
            failed: None,
            was_answered: false,
            backoff: Backoff::new(pauses.0, pauses.1),
        });
        (state.running, state.planned) = (None, Some(at));
        let line = if state.failed.is_some() {
            Line::Failing
        } else if self.new_ones_last && !state.was_answered {
            Line::New
        } else {
            Line::Healthy
        };
        self.schedule.plan(key, line, at);
    }

    /// Forgets a key with its failures. Cancels its request.
    pub fn cancel(&mut self, key: &K) {
        self.states.remove(key);
        self.schedule.cancel(key);
    }

    /// Cancels the request of a key, and remembers its failures.
    pub fn pause(&mut self, key: &K) {
        if let Some(state) = self.states.get_mut(key) {
            (state.running, state.planned) = (None, None);
            self.schedule.cancel(key);
        }
    }

    /// A request that runs waits for a server, and gives up its place, [if there are others for such](Self::with_slow).
    pub fn slow(&mut self, ticket: Ticket) {
        self.schedule.slow(ticket);
    }

    /// Whether neither a request runs for the key nor one is planned.
    pub fn is_idle(&self, key: &K) -> bool {
        let state = self.states.get(key);
        state.is_none_or(|state| state.planned.is_none() && state.running.is_none())
    }

    /// Whether a request is planned for the key, and does not run yet.
    pub fn is_planned(&self, key: &K) -> bool {
        self.planned(key).is_some()
    }

    /// When the next request for the key is due, if one is planned.
    pub fn planned(&self, key: &K) -> Option<Instant> {
        self.states.get(key)?.planned
    }

    /// Starts the next request that is due, if there is a place for it.
    pub fn start(&mut self, now: Instant) -> Option<Request<K>> {
        if self.quiet_until.is_some_and(|until| until > now) {
            return None;
        }
        let (key, ticket) = self.schedule.start(now)?;
        let stop = CancellationToken::new();
        let state = self.states.get_mut(&key)?;
        state.planned = None;
        state.running = Some((ticket, stop.clone().drop_guard()));
        let again = state.failed.is_some();
        Some(Request {
            key,
            ticket,
            again,
            stop,
        })
    }

    /// When the next request is due. None while no place is free or nobody waits.
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.schedule.next_due()?;
        Some(self.quiet_until.map_or(due, |until| until.max(due)))
    }

    /// A request has ended, and its place is free. Returns false if nobody needs the answer any more; otherwise
    /// [`succeeded`](Self::succeeded) or [`failed`](Self::failed) has to follow.
    pub fn ended(&mut self, key: &K, ticket: Ticket) -> bool {
        self.schedule.ended(ticket);
        let state = self.states.get_mut(key);
        let running = state.and_then(|state| state.running.take_if(|(running, _)| *running == ticket));
        running.map(|(_, guard)| guard.disarm()).is_some()
    }

    /// The request for the key was answered. Nothing is planned for it.
    pub fn succeeded(&mut self, key: &K, now: Instant) {
        let Some(state) = self.states.get_mut(key) else {
            return;
        };
        state.backoff.reset();
        state.was_answered = true;
        if state.failed.take().is_some() && self.one_cause {
            self.next_attempt = Some(now);
            for _ in 0..2 {
                // Not one that is due already: it has its turn.
                let waiting = self.failed_ones().filter(|(.., due)| *due > now);
                if let Some((key, ..)) = waiting.min_by_key(|(_, failed, _)| *failed) {
                    self.plan(&key.clone(), now);
                }
            }
        }
    }

    /// The keys that wait for another attempt, with the times of the last one and of the next one.
    fn failed_ones(&self) -> impl Iterator<Item = (&K, Instant, Instant)> {
        let waiting = self.states.iter();
        waiting.filter_map(|(key, state)| Some((key, state.failed?, state.planned?)))
    }

    /// The request for the key failed, and is planned again after a growing pause, and not before `at_least`.
    pub fn failed(&mut self, key: &K, now: Instant, at_least: Duration) {
        let mut pause = at_least;
        if self.one_cause && self.states.contains_key(key) {
            let next = self.next_attempt.unwrap_or(now).max(now) + INTERVAL;
            self.next_attempt = Some(next);
            pause = pause.max(next - now);
        }
        self.failed_alone(key, now, pause);
    }

    /// Does the same for a failure that is known to have a cause of its own: the key does not wait for others.
    pub fn failed_alone(&mut self, key: &K, now: Instant, at_least: Duration) {
        let Some(state) = self.states.get_mut(key) else {
            return;
        };
        state.failed = Some(now);
        let due = now + state.backoff.pause().max(at_least);
        self.plan(key, due);
    }

    /// The server wants to be left alone until then (`Retry-After`).
    pub fn quiet(&mut self, until: Instant) {
        self.quiet_until = self.quiet_until.max(Some(until));
    }

    /// The server answers again after an outage. All that has failed is planned at once.
    pub fn recovered(&mut self, now: Instant) {
        let failed: Vec<K> = self.failed_ones().map(|(key, ..)| key.clone()).collect();
        for key in &failed {
            if let Some(state) = self.states.get_mut(key) {
                state.backoff.reset();
            }
            self.plan(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn requests(at_once: usize) -> Requests<u32> {
        Requests::new(at_once, (MINUTE, MINUTE))
    }

    fn fail(requests: &mut Requests<u32>, key: u32, now: Instant) {
        requests.plan(&key, now);
        let Request { ticket, .. } = requests.start(now).unwrap();
        assert!(requests.ended(&key, ticket));
        requests.failed(&key, now, Duration::ZERO);
    }

    #[test]
    fn a_key_has_one_request_and_the_latest_plan_counts() {
        let now = Instant::now();
        let mut requests = requests(0);
        requests.plan(&1, now + MINUTE);
        requests.plan(&1, now);
        let first = requests.start(now).unwrap();
        requests.plan(&1, now);
        assert!(first.stop.is_cancelled());
        assert!(requests.start(now).is_none(), "its place is not free yet");
        assert!(!requests.ended(&1, first.ticket));
        let second = requests.start(now).unwrap();
        requests.cancel(&1);
        assert!(second.stop.is_cancelled() && !requests.ended(&1, second.ticket));
        assert!(requests.is_idle(&1) && requests.start(now + MINUTE).is_none());
    }

    #[test]
    fn a_pause_keeps_failures_and_one_that_waits_gives_up_its_place_to_known_keys_first() {
        let now = Instant::now();
        let mut requests = requests(1).with_slow(1, 2);
        requests.plan(&1, now);
        let hangs = requests.start(now).unwrap();
        requests.plan(&2, now);
        assert!(requests.start(now).is_none());
        requests.slow(hangs.ticket);
        let known = requests.start(now).unwrap();
        assert!(requests.ended(&2, known.ticket));
        requests.succeeded(&2, now);
        requests.plan(&0, now);
        requests.plan(&2, now);
        let order = [(); 2].map(|()| requests.start(now).unwrap().key);
        assert_eq!(order, [2, 0]);
        let mut requests = self::requests(1);
        fail(&mut requests, 1, now);
        requests.pause(&1);
        assert!(requests.is_idle(&1) && requests.start(now + MINUTE).is_none());
        requests.plan(&1, now);
        let again = requests.start(now).unwrap();
        requests.pause(&1);
        assert!(again.again && again.stop.is_cancelled() && !requests.ended(&1, again.ticket));
    }

    #[test]
    fn however_many_are_refused_four_are_tried_each_second_and_one_that_succeeds_frees_others() {
        let now = Instant::now();
        let mut requests = requests(10_000).one_cause();
        (0..5_000).for_each(|key| fail(&mut requests, key, now));
        let (mut tried, mut at) = (0, now);
        while at < now + 5 * MINUTE {
            at += Duration::from_millis(250);
            while let Some(Request { key, ticket, .. }) = requests.start(at) {
                tried += 1;
                assert!(requests.ended(&key, ticket));
                requests.failed(&key, at, Duration::ZERO);
            }
        }
        assert!((1_000..=1_300).contains(&tried), "{tried}");
        requests.quiet(at + 40 * MINUTE);
        requests.quiet(at);
        assert!(requests.start(at + 39 * MINUTE).is_none());
        at += 40 * MINUTE;
        let first = requests.start(at).unwrap();
        assert!(first.again && requests.ended(&first.key, first.ticket));
        requests.succeeded(&first.key, at);
        assert!(requests.is_idle(&first.key));
        requests.recovered(at);
        assert_eq!(requests.next_due(), Some(at));
    }

    #[test]
    fn keys_that_fail_for_causes_of_their_own_do_not_take_the_turns_of_others() {
        let now = Instant::now();
        let mut requests = requests(10).one_cause();
        (0..2_000).for_each(|key| fail(&mut requests, key, now));
        // The common cause ends. The ten lowest keys have causes of their own.
        let (mut at, mut good) = (now + MINUTE, 0);
        while at < now + 2 * MINUTE {
            at += Duration::from_millis(50);
            while let Some(Request { key, ticket, .. }) = requests.start(at) {
                assert!(requests.ended(&key, ticket));
                if key < 10 {
                    requests.failed(&key, at, Duration::ZERO);
                } else {
                    requests.succeeded(&key, at);
                    good += 1;
                }
            }
        }
        assert_eq!(good, 1_990);
    }
}
