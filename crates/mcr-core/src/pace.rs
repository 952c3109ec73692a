//! The pace of attempts that a hub has refused. No I/O, no clock of its own.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two attempts, however many objects a hub refuses.
const INTERVAL: Duration = Duration::from_millis(250);

/// When a provider tries again what its hub has refused.
///
/// Most refusals have one cause, such as a right that is missing. So all objects share one pace: four attempts a second, in the
/// order of their refusals. One that succeeds is a sign that the cause is gone; then two others are tried at once, and so on.
#[derive(Debug, Default)]
pub struct Pace {
    next: Option<Instant>,
    quiet_until: Option<Instant>,
}

impl Pace {
    /// The hub has refused an object, which by itself would wait for `pause`. Returns when to try it again.
    pub fn refused(&mut self, now: Instant, pause: Duration) -> Instant {
        let next = self.next.unwrap_or(now).max(now) + INTERVAL;
        self.next = Some(next);
        next.max(now + pause)
    }

    /// The hub wants to be left alone until then (`Retry-After`).
    pub fn quiet(&mut self, until: Instant) {
        self.quiet_until = self.quiet_until.max(Some(until));
    }

    /// Until when the hub wants to be left alone, if that is not over.
    pub fn quiet_until(&self, now: Instant) -> Option<Instant> {
        self.quiet_until.filter(|until| *until > now)
    }

    /// An object that was refused is given now. Returns how many others to try at once.
    pub fn recovered(&mut self, now: Instant) -> usize {
        self.next = Some(now);
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_are_refused_four_are_tried_each_second_and_few_wait_for_themselves_only() {
        let now = Instant::now();
        let mut pace = Pace::default();
        let minute = Duration::from_secs(60);
        let mut due: Vec<Instant> = (0..5_000).map(|_| pace.refused(now, Duration::ZERO)).collect();
        // Ten minutes, in which the hub refuses each attempt.
        for begun in (0..10).map(|count| now + minute * count) {
            due.sort_unstable();
            let tried: Vec<Instant> = due.iter().copied().filter(|due| *due < begun + minute).collect();
            assert!((230..=241).contains(&tried.len()), "{}", tried.len());
            due.drain(..tried.len());
            due.extend(tried.into_iter().map(|at| pace.refused(at, minute)));
        }
        let mut pace = Pace::default();
        assert_eq!(pace.refused(now, minute), now + minute);
        assert_eq!(
            pace.refused(now, Duration::from_secs(1)),
            now + Duration::from_secs(1)
        );
        pace.quiet(now + minute);
        pace.quiet(now);
        assert_eq!(pace.quiet_until(now), Some(now + minute));
        assert_eq!(pace.quiet_until(now + minute), None);
    }
}
