//! Decides which of the failures in one cluster are logged.

use std::time::Duration;

use tokio::time::Instant;

/// So many equal failures are logged one by one.
const LINES: u8 = 3;
/// The shortest time between two lines after that.
const PAUSE: Duration = Duration::from_secs(60);
/// The most classes of failures that are told apart. If there are more, the one that was absent longest is forgotten.
const MOST_CLASSES: usize = 16;

/// The failures of one controller in one cluster, by class: status code and reason. It lasts until nothing fails there.
#[derive(Debug, Default)]
pub(super) struct Damping {
    classes: Vec<Class>,
}

#[derive(Debug)]
struct Class {
    name: (u16, String),
    lines: u8,
    logged: Instant,
    seen: Instant,
    /// The failures since the last line.
    silent: u64,
}

impl Damping {
    /// Records a failure. Returns `None` if it is not logged, otherwise how many equal ones were not logged since the last line.
    pub(super) fn note(&mut self, class: &(u16, String), now: Instant) -> Option<u64> {
        let Some(known) = self.classes.iter_mut().find(|known| known.name == *class) else {
            self.add(class.clone(), now);
            return Some(0);
        };
        known.seen = now;
        if known.lines >= LINES && now.saturating_duration_since(known.logged) < PAUSE {
            known.silent += 1;
            return None;
        }
        known.lines = known.lines.saturating_add(1);
        known.logged = now;
        Some(std::mem::take(&mut known.silent))
    }

    fn add(&mut self, name: (u16, String), now: Instant) {
        if self.classes.len() >= MOST_CLASSES {
            let oldest = (0..self.classes.len()).min_by_key(|at| self.classes[*at].seen);
            oldest.map(|at| self.classes.swap_remove(at));
        }
        self.classes.push(Class {
            name,
            lines: 1,
            logged: now,
            seen: now,
            silent: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(reason: &str) -> (u16, String) {
        (403, reason.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_fourth_equal_failure_waits_for_its_minute_and_says_how_many_were_silent() {
        let mut damping = Damping::default();
        let mut note = |reason: &str| damping.note(&class(reason), Instant::now());
        assert_eq!(
            [(); 5].map(|()| note("a")),
            [Some(0), Some(0), Some(0), None, None]
        );
        // Another reason, and another code with the same reason, have lines of their own.
        assert_eq!([(); 4].map(|()| note("b")), [Some(0), Some(0), Some(0), None]);
        tokio::time::advance(PAUSE - Duration::from_millis(1)).await;
        assert_eq!(note("a"), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!([note("a"), note("a"), note("b")], [Some(3), None, Some(1)]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([note("a"), note("a"), note("b")], [Some(1), None, Some(0)]);
        assert_eq!(damping.note(&(404, "a".to_owned()), Instant::now()), Some(0));
    }

    /// All sequences of seven failures of two classes, with three pauses between them.
    #[tokio::test(start_paused = true)]
    async fn every_failure_is_logged_or_counted_and_the_lines_keep_their_distance() {
        const STEPS: [(usize, u64); 5] = [(0, 0), (0, 25), (0, 60), (1, 0), (1, 25)];
        let classes = [class("a"), class("b")];
        let begin = Instant::now();
        for sequence in 0..STEPS.len().pow(7) {
            let (mut damping, mut now, mut rest) = (Damping::default(), begin, sequence);
            let (mut lines, mut silent) = ([vec![], vec![]], [0, 0]);
            for _ in 0..7 {
                let (at, pause) = STEPS[rest % STEPS.len()];
                rest /= STEPS.len();
                now += Duration::from_secs(pause);
                match damping.note(&classes[at], now) {
                    Some(repeated) => {
                        assert_eq!(repeated, silent[at], "{sequence}");
                        silent[at] = 0;
                        lines[at].push(now);
                    }
                    None => {
                        let last = *lines[at].last().unwrap();
                        assert!(lines[at].len() >= 3 && now - last < PAUSE, "{sequence}");
                        silent[at] += 1;
                    }
                }
            }
            for lines in lines {
                let later = lines.iter().skip(2).zip(lines.iter().skip(3));
                for (before, line) in later {
                    assert!(*line - *before >= PAUSE, "{sequence}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_forgets_what_was_absent_longest() {
        let mut damping = Damping::default();
        let begin = Instant::now();
        let mut second = 0;
        let mut note = |damping: &mut Damping, reason: &str| {
            second += 1;
            damping.note(&class(reason), begin + Duration::from_millis(second))
        };
        for _ in 0..4 {
            note(&mut damping, "often");
        }
        for other in 0..1_000 {
            assert_eq!(note(&mut damping, &other.to_string()), Some(0));
            // Stays known, because it comes more often than the others.
            assert_eq!(note(&mut damping, "often"), None);
            assert!(damping.classes.len() <= MOST_CLASSES);
        }
        assert_eq!(note(&mut damping, "0"), Some(0), "forgotten");
    }
}
