//! The places in which plugins run.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, LazyLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::schedule::{Line, Schedule, Ticket};

/// How many plugins work at the same time, so that the start of a large fleet does not start thousands of programs.
const AT_ONCE: usize = 8;
/// How many plugins may beside them wait for a server. These take memory, but no time of the processor.
const SLOW_AT_ONCE: usize = 1024;
/// A plugin that runs longer than this, and does nothing but wait, takes a place for slow ones.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// When to look again at one that works.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Shared by all plugins of a process. A plugin has at most one run, and so at most one place.
pub(super) struct Places(Mutex<State>);

struct State {
    schedule: Schedule<u64>,
    waiting: HashMap<u64, oneshot::Sender<Place>>,
    next: u64,
}

/// The right to run a plugin, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    ticket: Ticket,
}

/// One that waits for a place, until it is dropped.
struct Waiting<'a>(&'a Arc<Places>, u64);

impl Places {
    /// The places of this process.
    pub(super) fn shared() -> &'static Arc<Self> {
        static PLACES: LazyLock<Arc<Places>> = LazyLock::new(Places::new);
        &PLACES
    }

    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            schedule: Schedule::with_slow(AT_ONCE, SLOW_AT_ONCE),
            waiting: HashMap::new(),
            next: 0,
        })))
    }

    /// Waits for a place. Who has waited longest is first in its line; `since` keeps the turn of one that comes back.
    ///
    /// Cancel safe.
    pub(super) async fn wait(self: &Arc<Self>, line: Line, since: Instant) -> Option<Place> {
        let (sender, place) = oneshot::channel();
        let waiting = self.change(|state| {
            state.next += 1;
            state.schedule.plan(&state.next, line, since);
            state.waiting.insert(state.next, sender);
            Waiting(self, state.next)
        });
        let place = place.await.ok();
        drop(waiting);
        place
    }

    /// Changes the state, and gives free places to those that wait for one.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        let mut given = Vec::new();
        let mut state = self.0.lock();
        let result = change(&mut state);
        while let Some((number, ticket)) = state.schedule.start(Instant::now()) {
            let place = Place {
                places: self.clone(),
                ticket,
            };
            given.push((state.waiting.remove(&number), place));
        }
        drop(state);
        // Not under the lock: a place that nobody waits for any more is dropped here.
        for (sender, place) in given {
            if let Some(sender) = sender {
                let _ = sender.send(place);
            }
        }
        result
    }
}

impl Place {
    /// Does the work of a plugin. `waits` is asked whether the plugin has only waited since it was asked last.
    pub(super) async fn hold<T>(&self, work: impl Future<Output = T>, mut waits: impl FnMut() -> bool) -> T {
        let mut work = pin!(work);
        let mut look = SLOW_AFTER;
        loop {
            if let Ok(done) = timeout(look, &mut work).await {
                return done;
            }
            look = LOOK_AGAIN;
            if waits() {
                self.places.change(|state| state.schedule.slow(self.ticket));
                return work.await;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.change(|state| state.schedule.ended(self.ticket));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self(places, number) = self;
        let sender = places.change(|state| {
            state.schedule.cancel(number);
            state.waiting.remove(number)
        });
        drop(sender);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Runs the plugin of a cluster again and again, as a fleet does. `takes`: None if it hangs. Sends the time that each
    /// credential took to come.
    async fn cluster(places: Arc<Places>, takes: Option<Duration>, come: mpsc::UnboundedSender<Duration>) {
        let (mut line, mut failures) = (Line::New, 0_u32);
        loop {
            let asked = Instant::now();
            let place = places.wait(line, asked).await.unwrap();
            let work = tokio::time::sleep(takes.unwrap_or(Duration::MAX));
            let done = timeout(Duration::from_secs(30), place.hold(work, || true)).await;
            drop(place);
            let mut pause = Duration::from_secs(60);
            line = match done {
                Ok(()) => Line::Healthy,
                Err(_) => Line::Failing,
            };
            if line == Line::Healthy {
                come.send(asked.elapsed()).unwrap();
            } else {
                failures += 1;
                pause = pause.min(Duration::from_secs(1 << failures.min(6)));
            }
            tokio::time::sleep(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_that_hang_hold_up_no_other_one_when_new_and_when_known() {
        for (hung, takes, limit) in [(1000, 1, 5), (400, 2, 5), (30, 1, 5), (0, 1, 5)] {
            let places = Places::new();
            let (come, mut times) = mpsc::unbounded_channel();
            let mut tasks = tokio::task::JoinSet::new();
            let takes = Some(Duration::from_secs(takes));
            // Half of the healthy ones before those that hang, half after.
            let all = [(5, takes), (hung, None), (5, takes)];
            for takes in all.into_iter().flat_map(|(count, takes)| vec![takes; count]) {
                tasks.spawn(cluster(places.clone(), takes, come.clone()));
            }
            // Ten minutes: the first credentials, and renewals while those that hang are tried again and again.
            let mut most = 0;
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                most = most.max(places.0.lock().schedule.running());
            }
            let last = places.0.lock().schedule.running();
            let times: Vec<_> = std::iter::from_fn(|| times.try_recv().ok()).collect();
            assert!(times.len() >= 90, "{hung} hang: {}", times.len());
            let longest = times.iter().max().unwrap();
            assert!(*longest <= Duration::from_secs(limit), "{hung} hang: {longest:?}");
            assert!(most <= AT_ONCE + SLOW_AT_ONCE, "{hung} hang: {most} processes");
            // Few processes for those that are known to hang.
            assert!(last <= 36 + 10, "{hung} hang: {last} processes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_eight_plugins_work_at_once_and_who_gives_up_keeps_its_turn() {
        let places = Places::new();
        let now = Instant::now();
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(places.wait(Line::New, now).await.unwrap());
        }
        let long = held[0].hold(tokio::time::sleep(Duration::from_secs(5)), || false);
        assert!(
            timeout(Duration::from_secs(3), places.wait(Line::New, now))
                .await
                .is_err()
        );
        long.await;
        let mut other = pin!(places.wait(Line::New, Instant::now()));
        assert!(futures::poll!(&mut other).is_pending());
        let mut again = pin!(places.wait(Line::New, now));
        assert!(futures::poll!(&mut again).is_pending());
        held.pop();
        assert!(futures::poll!(&mut other).is_pending());
        drop(again.await);
        drop(other.await);
        drop(held);
        assert_eq!(places.0.lock().schedule.running(), 0);
    }
}
