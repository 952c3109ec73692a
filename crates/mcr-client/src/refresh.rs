//! Coordinates requests that got a 401 with the task that fetches newer credentials.

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{observable::Observable, settings::Settings};

/// Whether the API server refuses the current generation of credentials.
#[derive(Default)]
pub(super) struct CredentialRefresh(Observable<State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Whether the API server has refused the current generation, and the refresh for it has not finished.
    refused: bool,
    /// How many refreshes brought no newer credentials.
    unchanged: u64,
    /// When the last of them finished; `None` if it was for an earlier generation.
    unchanged_at: Option<Instant>,
}

impl CredentialRefresh {
    /// Starts the next generation. `start` runs under a lock, and ends the generation before.
    pub(super) fn start_generation(&self, start: impl FnOnce()) {
        self.0.change(|state| {
            *state = State {
                unchanged: state.unchanged,
                ..State::default()
            };
            start();
        });
    }

    /// Finishes a refresh that brought no newer credentials.
    pub(super) fn finish_unchanged(&self) {
        self.0.change(|state| {
            state.refused = false;
            state.unchanged += 1;
            state.unchanged_at = Some(Instant::now());
        });
    }

    /// Waits until the API server has refused the current generation.
    pub(super) fn refused(&self) -> impl Future<Output = ()> {
        self.0.wait(|state| state.refused.then_some(()))
    }

    /// Reports that the API server has refused a generation, and waits for the end of the refresh. `rotated` is cancelled when the
    /// next generation starts. Returns whether there are newer credentials.
    pub(super) async fn report_refused(&self, rotated: &CancellationToken, settings: &Settings) -> bool {
        let is_replaced = || rotated.is_cancelled();
        let before = self.0.read(State::clone);
        if is_replaced() {
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
            let is_new = !is_replaced() && !state.refused && state.unchanged == before.unchanged;
            state.refused |= is_new;
            is_new
        });
        let finished = self.0.wait(|state| {
            let is_newer = is_replaced();
            (is_newer || state.unchanged > before.unchanged).then_some(is_newer)
        });
        timeout(settings.refresh_wait, finished).await.unwrap_or(false)
    }
}
