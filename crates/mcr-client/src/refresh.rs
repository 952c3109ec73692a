//! What requests that met a 401 and the cluster's supervisor tell each other.

use tokio::time::{Instant, timeout};

use crate::{Settings, latest::Latest};

/// Generations of credentials and which of them was refused.
#[derive(Default)]
pub(super) struct Refreshes(Latest<State>);

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
        self.0.change(|state| {
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
        self.0.change(|state| {
            state.refused = false;
            state.in_vain += 1;
            state.in_vain_at = Some(Instant::now());
        });
    }

    pub(super) fn refused(&self) -> impl Future<Output = u64> {
        self.0.wait(|state| state.refused.then_some(state.generation))
    }

    /// Reports a 401 and waits for what comes of it. Returns whether there are newer credentials now.
    pub(super) async fn report(&self, generation: u64, settings: &Settings) -> bool {
        let before = self.0.read(State::clone);
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
        self.0.change_if(|state| {
            let news = state.generation == generation && !state.refused && state.in_vain == before.in_vain;
            state.refused |= news;
            news
        });
        let answered = self.0.wait(|state| {
            let newer = state.generation > generation;
            (newer || state.in_vain > before.in_vain).then_some(newer)
        });
        timeout(settings.refresh_wait, answered).await.unwrap_or(false)
    }
}
