//! Decides which of the failures in one cluster are logged.

use std::time::Duration;

use mcr_core::ClusterName;
use tokio::time::Instant;

/// So many equal failures are logged one by one.
const LINES: u8 = 3;
/// The shortest time between two lines after that.
const PAUSE: Duration = Duration::from_secs(60);
/// The most classes of failures that are distinguished. If there are more, the one that was absent longest is forgotten.
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

/// The refusals of API servers in all clusters of a controller, by class. A missing right is often missing in all of them: one
/// cluster at a time is logged for each class.
#[derive(Debug, Default)]
pub(crate) struct FleetDamping {
    classes: Vec<Spoken>,
}

#[derive(Debug)]
struct Spoken {
    name: (u16, String),
    /// The cluster whose failures are logged.
    cluster: ClusterName,
    logged: Instant,
    /// The lines of other clusters since the last one.
    elsewhere: u64,
}

impl FleetDamping {
    /// Records a failure that the cluster would log. Returns `None` if it is not logged, otherwise how many were not logged in
    /// other clusters since the last line.
    pub(crate) fn note(&mut self, class: (u16, String), cluster: &ClusterName, now: Instant) -> Option<u64> {
        let Some(known) = self.classes.iter_mut().find(|known| known.name == class) else {
            if self.classes.len() >= MOST_CLASSES {
                let oldest = (0..self.classes.len()).min_by_key(|at| self.classes[*at].logged);
                oldest.map(|at| self.classes.swap_remove(at));
            }
            self.classes.push(Spoken {
                name: class,
                cluster: cluster.clone(),
                logged: now,
                elsewhere: 0,
            });
            return Some(0);
        };
        if known.cluster != *cluster && now.saturating_duration_since(known.logged) < PAUSE {
            known.elsewhere += 1;
            return None;
        }
        (known.cluster, known.logged) = (cluster.clone(), now);
        Some(std::mem::take(&mut known.elsewhere))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(reason: &str) -> (u16, String) {
        (403, reason.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_fourth_equal_failure_waits_for_its_minute_and_reports_how_many_were_silent() {
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

    #[tokio::test(start_paused = true)]
    async fn one_cause_in_200_clusters_is_logged_for_one_of_them_with_the_number_of_the_others() {
        let mut damping = FleetDamping::default();
        let clusters: Vec<_> = (0..200)
            .map(|at| ClusterName::new(format!("c{at}")).unwrap())
            .collect();
        let mut note = |at: usize, reason: &str| damping.note(class(reason), &clusters[at], Instant::now());
        assert_eq!((note(0, "a"), note(0, "a")), (Some(0), Some(0)));
        assert!((1..200).all(|at| note(at, "a").is_none()));
        assert_eq!((note(5, "b"), note(0, "a")), (Some(0), Some(199)));
        // The cluster has recovered or left: another one takes its place.
        assert_eq!(note(7, "a"), None);
        tokio::time::advance(PAUSE).await;
        assert_eq!((note(7, "a"), note(0, "a")), (Some(1), None));
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
