//! Growing, jittered pauses between the starts of a child that fails.

use std::time::Duration;

use rand::Rng;

/// A child that ran for this long has recovered: its next pause is short again.
const RECOVERED: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(60);

/// Pauses that double up to a cap, each jittered down by up to a half.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure, of a discovery that had run for `ran`.
    pub(crate) fn next(&mut self, ran: Duration) -> Duration {
        if ran > RECOVERED {
            self.failures = 0;
        }
        let full = FIRST.saturating_mul(1 << self.failures.min(20)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_only_a_long_run_shortens_them() {
        let mut backoff = Backoff::default();
        for i in 0..30 {
            let pause = backoff.next(Duration::from_secs(1));
            let full = FIRST.saturating_mul(1 << i.min(16)).min(CAP);
            assert!(pause <= full && pause >= full / 2, "{i}: {pause:?}");
        }
        assert!(backoff.next(RECOVERED) >= CAP / 2);
        assert!(backoff.next(RECOVERED * 2) <= FIRST);
    }
}
