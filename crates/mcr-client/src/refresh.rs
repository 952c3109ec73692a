//! Coordinates requests that got a 401 with the task that fetches newer credentials.

use tokio::time::{Instant, timeout};

use crate::{observable::Observable, settings::Settings};

/// The current generation of credentials, and whether the API server refuses it.
#[derive(Default)]
pub(super) struct CredentialRefresh(Observable<State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The current generation; the first is 1.
    generation: u64,
    /// Whether the API server has refused this generation, and the refresh for it has not finished.
    refused: bool,
    /// How many refreshes brought no newer credentials.
    unchanged: u64,
    /// When the last of them finished; `None` if it was for an earlier generation.
    unchanged_at: Option<Instant>,
}

impl CredentialRefresh {
    /// Starts the next generation and returns its number. `start` runs under a lock, so that generations start in the order of
    /// their numbers.
    pub(super) fn start_generation(&self, start: impl FnOnce(u64)) -> u64 {
        let mut generation = 0;
        self.0.change(|state| {
            *state = State {
                generation: state.generation + 1,
                unchanged: state.unchanged,
                ..State::default()
            };
            generation = state.generation;
            start(generation);
        });
        generation
    }

    /// Finishes a refresh that brought no newer credentials.
    pub(super) fn finish_unchanged(&self) {
        self.0.change(|state| {
            state.refused = false;
            state.unchanged += 1;
            state.unchanged_at = Some(Instant::now());
        });
    }

    /// Waits until the API server has refused the current generation, and returns its number.
    pub(super) fn refused(&self) -> impl Future<Output = u64> {
        self.0.wait(|state| state.refused.then_some(state.generation))
    }

    /// Reports that the API server has refused `generation`, and waits for the end of the refresh. Returns whether there are
    /// newer credentials.
    pub(super) async fn report_refused(&self, generation: u64, settings: &Settings) -> bool {
        let before = self.0.read(State::clone);
        if before.generation > generation {
            return true;
        }
        // Credentials that stay invalid must not keep the credential source busy.
        if before
            .unchanged_at
            .is_some_and(|at| at.elapsed() < settings.refresh_pause)
        {
            return false;
        }
        self.0.change_if(|state| {
            let is_new =
                state.generation == generation && !state.refused && state.unchanged == before.unchanged;
            state.refused |= is_new;
            is_new
        });
        let finished = self.0.wait(|state| {
            let is_newer = state.generation > generation;
            (is_newer || state.unchanged > before.unchanged).then_some(is_newer)
        });
        timeout(settings.refresh_wait, finished).await.unwrap_or(false)
    }
}
