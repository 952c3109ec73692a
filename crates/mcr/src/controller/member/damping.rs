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

/// A state for each of the classes of failures that came last.
#[derive(Debug)]
struct Classes<T>(Vec<Class<T>>);

#[derive(Debug)]
struct Class<T> {
    name: (u16, String),
    seen: Instant,
    state: T,
}

impl<T> Default for Classes<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Classes<T> {
    /// The state of a class that a failure has now. `None` if the class is new; then its state is `first`.
    fn note(&mut self, name: &(u16, String), now: Instant, first: impl FnOnce() -> T) -> Option<&mut T> {
        if let Some(at) = self.0.iter().position(|known| known.name == *name) {
            let known = &mut self.0[at];
            known.seen = now;
            return Some(&mut known.state);
        }
        if self.0.len() >= MOST_CLASSES {
            let oldest = (0..self.0.len()).min_by_key(|at| self.0[*at].seen);
            oldest.map(|at| self.0.swap_remove(at));
        }
        let (name, state) = (name.clone(), first());
        self.0.push(Class {
            name,
            seen: now,
            state,
        });
        None
    }
}

/// The failures of one controller in one cluster, by class: status code and reason. It lasts until nothing fails there.
#[derive(Debug, Default)]
pub(super) struct Damping(Classes<Lines>);

#[derive(Debug)]
struct Lines {
    count: u8,
    logged: Instant,
    /// The failures since the last line.
    silent: u64,
}

impl Damping {
    /// Records a failure. Returns `None` if it is not logged, otherwise how many equal ones were not logged since the last line.
    pub(super) fn note(&mut self, class: &(u16, String), now: Instant) -> Option<u64> {
        let first = || Lines {
            count: 1,
            logged: now,
            silent: 0,
        };
        let Some(lines) = self.0.note(class, now, first) else {
            return Some(0);
        };
        if lines.count >= LINES && now.saturating_duration_since(lines.logged) < PAUSE {
            lines.silent += 1;
            return None;
        }
        lines.count = lines.count.saturating_add(1);
        lines.logged = now;
        Some(std::mem::take(&mut lines.silent))
    }
}

/// The refusals of API servers in all clusters of a controller, by class. A missing right is often missing in all of them: one
/// cluster at a time is logged for each class.
#[derive(Debug, Default)]
pub(crate) struct FleetDamping(Classes<LoggedCluster>);

#[derive(Debug)]
struct LoggedCluster {
    /// The cluster whose failures are logged.
    cluster: ClusterName,
    logged: Instant,
    /// The lines of other clusters since the last one.
    elsewhere: u64,
}

impl FleetDamping {
    /// Records a failure that the cluster would log. Returns `None` if it is not logged, otherwise how many were not logged in
    /// other clusters since the last line.
    pub(crate) fn note(&mut self, class: &(u16, String), cluster: &ClusterName, now: Instant) -> Option<u64> {
        let first = || LoggedCluster {
            cluster: cluster.clone(),
            logged: now,
            elsewhere: 0,
        };
        let Some(known) = self.0.note(class, now, first) else {
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
    async fn one_cause_in_200_clusters_is_logged_for_one_of_them_with_the_number_of_the_others() {
        let mut damping = FleetDamping::default();
        let clusters: Vec<_> = (0..200)
            .map(|at| ClusterName::new(format!("c{at}")).unwrap())
            .collect();
        let mut note = |at: usize, reason: &str| damping.note(&class(reason), &clusters[at], Instant::now());
        assert_eq!((note(0, "a"), note(0, "a")), (Some(0), Some(0)));
        assert!((1..200).all(|at| note(at, "a").is_none()));
        assert_eq!((note(5, "b"), note(0, "a")), (Some(0), Some(199)));
        // The cluster has recovered or left: another one takes its place.
        assert_eq!(note(7, "a"), None);
        tokio::time::advance(PAUSE).await;
        assert_eq!((note(7, "a"), note(0, "a")), (Some(1), None));
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
            assert!(damping.0.0.len() <= MOST_CLASSES);
        }
        assert_eq!(note(&mut damping, "0"), Some(0), "forgotten");
    }
}
