//! Helpers for tests: a background task, a wait for a condition, and an `unwrap` that fails with a readable text.
//!
//! ```
//! use std::time::Duration;
//! use mcr_core::Fleet;
//! use mcr_testkit::waiting::{Background, eventually};
//!
//! # async fn test(client: kube::Client) {
//! let fleet = Fleet::single(client);
//! let runs = fleet.clone();
//! let running = Background::start(|stop| async move { runs.run(stop).await });
//! let cluster = eventually(Duration::from_secs(5), "it is engaged", || fleet.get("local").ok()).await;
//! cluster.wait_for(|state| state.is_ready()).await;
//! running.stop().await;
//! # }
//! ```

use std::fmt::Display;
use std::panic::{Location, resume_unwind};
use std::sync::mpsc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// An `unwrap` that panics with the `Display` text of the error, which users see, instead of its `Debug` form.
pub trait OrFail<T> {
    /// Returns the value.
    ///
    /// # Panics
    ///
    /// With the text of the error, if this is an error.
    #[track_caller]
    fn or_fail(self) -> T;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_fail(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The result of the function that [`eventually`] calls: an `Option` that becomes `Some`, or a `bool` that becomes
/// true.
pub trait Answer {
    /// The type of the value.
    type Value;
    /// Returns the value, or `None` if it is not there yet.
    fn value(self) -> Option<Self::Value>;
}

impl<T> Answer for Option<T> {
    type Value = T;
    fn value(self) -> Self {
        self
    }
}

impl Answer for bool {
    type Value = ();
    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

/// Calls `ask` every 5 ms until it returns `Some` or `true`. In paused time each pause moves the clock.
///
/// # Panics
///
/// If `ask` returns only `None` or `false` for `limit`. The message contains `what` and the line of the caller.
#[track_caller]
pub fn eventually<A: Answer>(
    limit: Duration,
    what: impl Display,
    mut ask: impl FnMut() -> A,
) -> impl Future<Output = A::Value> {
    let caller = Location::caller();
    async move {
        let started = Instant::now();
        loop {
            if let Some(value) = ask().value() {
                return value;
            }
            assert!(
                started.elapsed() < limit,
                "not within {limit:?}: {what} ({caller})"
            );
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Prevents tokio's paused clock from advancing by itself until the returned value is dropped.
///
/// A paused clock jumps to the next timer whenever all tasks wait, even if they wait for a socket or a process. So
/// timers fire before the data arrives. While the clock is held, only `tokio::time::advance` advances it. The hold
/// ends after two minutes of real time, so that a test that hangs reaches its deadlines and fails.
///
/// # Panics
///
/// Outside of a tokio runtime.
pub fn hold_clock() -> HeldClock {
    const LIMIT: Duration = Duration::from_secs(120);
    let (held, ended) = mpsc::channel::<()>();
    // tokio does not advance a paused clock while a task of `spawn_blocking` runs.
    drop(spawn_blocking(move || ended.recv_timeout(LIMIT)));
    HeldClock(held)
}

/// Holds the clock until it is dropped. Returned by [`hold_clock`].
#[derive(Debug)]
#[must_use = "dropping it lets the clock go on"]
pub struct HeldClock(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

/// A task that runs during a test, such as a fleet or a manager. [`stop`](Self::stop) stops it and waits. Dropping it
/// cancels the task without waiting.
#[derive(Debug)]
#[must_use = "dropping it stops what runs"]
pub struct Background<T> {
    stop: DropGuard,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Background<T> {
    /// Spawns the future that `begin` returns. The future must end when the given token is cancelled.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start<F>(begin: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let stop = CancellationToken::new();
        Self {
            task: tokio::spawn(begin(stop.clone())),
            stop: stop.drop_guard(),
        }
    }

    /// Cancels the token, waits for the task, and returns its result.
    ///
    /// # Panics
    ///
    /// If the task has panicked, or does not end within a minute.
    pub async fn stop(self) -> T {
        const LIMIT: Duration = Duration::from_secs(60);
        drop(self.stop);
        match timeout(LIMIT, self.task).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => panic!("what ran in the background was ended: {error}"),
            },
            Err(_) => panic!("what runs in the background did not end within {LIMIT:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 2s: pigs fly (")]
    async fn what_never_comes_true_is_named() {
        eventually(Duration::from_secs(2), "pigs fly", || None::<()>).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_held_moves_only_when_it_is_asked_to() {
        let (clock, begun) = (hold_clock(), Instant::now());
        let mut later = std::pin::pin!(sleep(Duration::from_secs(10)));
        assert!(futures::poll!(later.as_mut()).is_pending());
        // While this runs in real time, every task waits.
        let slow = spawn_blocking(|| std::thread::sleep(Duration::from_millis(20)));
        slow.await.or_fail();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(10)).await;
        later.await;
        drop(clock);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(begun.elapsed().as_secs(), 20);
    }
}
