//! Warnings that callers could cause without end.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The pause between two warnings.
const PAUSE: Duration = Duration::from_secs(60);

/// When there was a warning last.
#[derive(Default)]
pub(super) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it is time for another warning, which counts from now on.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|at| at.elapsed() >= PAUSE);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
