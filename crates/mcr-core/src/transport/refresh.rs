//! What requests that met a 401 and the cluster's supervisor tell each other.

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::Settings;

/// Generations of credentials and which of them was refused.
#[derive(Default)]
pub(super) struct Refreshes(watch::Sender<State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The current generation, from 1.
    generation: u64,
    /// Whether it was refused and nothing was done about that yet.
    refused: bool,
    /// How often it was found that there is nothing newer, and when last.
    in_vain: u64,
    in_vain_at: Option<Instant>,
}

impl Refreshes {
    /// Begins the next generation. `begin` runs under a lock, so that generations can't begin in another order
    /// than they are numbered.
    pub(super) fn next(&self, begin: impl FnOnce(u64)) -> u64 {
        let mut generation = 0;
        self.0.send_modify(|state| {
            *state = State {
                generation: state.generation + 1,
                in_vain: state.in_vain,
                ..State::default()
            };
            generation = state.generation;
            begin(generation);
        });
        generation
    }

    pub(super) fn in_vain(&self) {
        self.0.send_modify(|state| {
            state.refused = false;
            state.in_vain += 1;
            state.in_vain_at = Some(Instant::now());
        });
    }

    pub(super) async fn refused(&self) -> u64 {
        let mut states = self.0.subscribe();
        let refused = states
            .wait_for(|state| state.refused)
            .await
            .map(|state| state.generation);
        match refused {
            Ok(generation) => generation,
            // The sender is borrowed, so it is still there.
            Err(_) => std::future::pending().await,
        }
    }

    /// Reports a 401 and waits for what comes of it. Returns whether there are newer credentials now.
    pub(super) async fn report(&self, generation: u64, settings: &Settings) -> bool {
        let mut states = self.0.subscribe();
        let before = *states.borrow_and_update();
        if before.generation > generation {
            return true;
        }
        // Whoever is forbidden everything must not keep the source of credentials busy.
        if before
            .in_vain_at
            .is_some_and(|at| at.elapsed() < settings.refresh_pause)
        {
            return false;
        }
        self.0.send_if_modified(|state| {
            let news = state.generation == generation && !state.refused && state.in_vain == before.in_vain;
            state.refused |= news;
            news
        });
        let answered =
            states.wait_for(|state| state.generation > generation || state.in_vain > before.in_vain);
        matches!(timeout(settings.refresh_wait, answered).await, Ok(Ok(state)) if state.generation > generation)
    }
}
