//! Exponential backoff with jitter.

use std::time::Duration;

/// Pauses that double up to a cap. Each is shortened at random by up to a half.
///
/// Only the caller resets it, after real progress. kube's adapters reset their backoff with each attempt, so they dial a dead
/// cluster every second for ever.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses from `first` up to `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            failures: 0,
        }
    }

    /// Counts one more failure, and returns the pause after it.
    pub fn pause(&mut self) -> Duration {
        let full = self
            .first
            .saturating_mul(1 << self.failures.min(20))
            .min(self.cap);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Starts again with the first pause.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random duration up to `max`. It spreads work that many clusters would otherwise do at once.
pub fn jitter(max: Duration) -> Duration {
    max.mul_f64(rand::random_range(0.0..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_only_a_reset_shortens_them() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(20));
        let pauses: Vec<_> = (0..30).map(|_| backoff.pause()).collect();
        for (i, pause) in pauses.iter().enumerate() {
            let full = Duration::from_millis(500 << i.min(16)).min(Duration::from_secs(20));
            assert!(*pause <= full && *pause >= full / 2, "{i}: {pause:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(500));
    }
}
