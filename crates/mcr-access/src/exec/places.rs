//! The places in which plugins run.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::{
    schedule::{Line, Schedule, Ticket},
    sync::lock,
};

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
        let mut state = lock(&self.0);
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
    use super::*;

    /// How the plugin of a cluster behaves. None: it hangs.
    type Takes = Option<Duration>;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// Runs the plugin of a cluster again and again, as a fleet does. Sends the time that each credential took to come.
    async fn cluster(places: Arc<Places>, takes: Takes, mut line: Line, come: tokio::sync::mpsc::UnboundedSender<Duration>) {
        let mut failures = 0_u32;
        loop {
            let asked = Instant::now();
            let place = places.wait(line, asked).await.unwrap();
            let work = async {
                match takes {
                    Some(takes) => tokio::time::sleep(takes).await,
                    None => std::future::pending().await,
                }
            };
            let done = timeout(DEADLINE, place.hold(work, || true)).await.is_ok();
            drop(place);
            if done {
                line = Line::Healthy;
                come.send(asked.elapsed()).unwrap();
                tokio::time::sleep(Duration::from_secs(60)).await;
            } else {
                line = Line::Failing;
                failures += 1;
                tokio::time::sleep(Duration::from_secs(60.min(1 << failures))).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_that_hang_hold_up_no_other_one_when_new_and_when_known() {
        for (hung, healthy, takes, first_hang) in [
            (1000, 10, 1, true),
            (1000, 10, 1, false),
            (400, 10, 2, true),
            (30, 1, 1, true),
            (0, 100, 1, true),
        ] {
            let places = Places::new();
            let (come, mut times) = tokio::sync::mpsc::unbounded_channel();
            let mut tasks = tokio::task::JoinSet::new();
            let mut start = |takes, count| {
                for _ in 0..count {
                    tasks.spawn(cluster(places.clone(), takes, Line::New, come.clone()));
                }
            };
            let takes = Some(Duration::from_secs(takes));
            if first_hang {
                start(None, hung);
                start(takes, healthy);
            } else {
                start(takes, healthy);
                start(None, hung);
            }
            // Ten minutes: the first credentials, and renewals while those that hang are tried again and again.
            let mut most = 0;
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let running = lock(&places.0).schedule.running();
                most = most.max(running);
            }
            let mut count = 0;
            while let Ok(took) = times.try_recv() {
                count += 1;
                let limit = if hung == 0 { 14 } else { 5 };
                assert!(took <= Duration::from_secs(limit), "{hung} hang: {took:?} after {count}");
            }
            assert!(count >= healthy * 9, "{hung} hang: {count} credentials of {healthy}");
            assert!(most <= AT_ONCE + SLOW_AT_ONCE, "{most}");
            if hung == 0 {
                assert!(most <= 2 * AT_ONCE, "{most} at once of those that answer");
            } else {
                // Those that are known to hang keep few processes.
                let now = lock(&places.0).schedule.running();
                assert!(now <= 6 * AT_ONCE, "{now}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_that_work_long_keep_their_places() {
        let places = Places::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let places = places.clone();
            tasks.spawn(async move {
                let place = places.wait(Line::New, Instant::now()).await.unwrap();
                place.hold(tokio::time::sleep(Duration::from_secs(5)), || false).await;
            });
        }
        while !tasks.is_empty() {
            assert!(lock(&places.0).schedule.running() <= AT_ONCE);
            let _ = timeout(Duration::from_millis(500), tasks.join_next()).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_keeps_its_turn_and_no_place() {
        let places = Places::new();
        let now = Instant::now();
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(places.wait(Line::New, now).await.unwrap());
        }
        let first = now + Duration::from_secs(1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(timeout(Duration::from_secs(1), places.wait(Line::New, first)).await.is_err());
        let other = tokio::spawn({
            let places = places.clone();
            async move { places.wait(Line::New, Instant::now()).await.is_some() }
        });
        tokio::task::yield_now().await;
        let mut again = pin!(places.wait(Line::New, first));
        assert!(futures::poll!(&mut again).is_pending());
        held.pop();
        assert!(again.await.is_some());
        assert!(other.await.unwrap());
        drop(held);
        assert_eq!(lock(&places.0).schedule.running(), 0);
    }
}
