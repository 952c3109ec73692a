//! What people were told about sources, so that a retry does not tell it again.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcr::{ClusterName, RequestKey};
use tokio::time::Instant;

/// How long the words of an error stay while its reason and the source do. Some errors have other words at each attempt, such as
/// the port of a connection. Each new condition is a change of the source, and so leads to the next attempt at once.
const STAYS: Duration = Duration::from_secs(60);

/// A problem of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The generation of the source, if the problem is an error. Its words may differ at each attempt.
    pub(crate) generation: Option<i64>,
}

/// A problem, and when it was told.
struct Last {
    problem: Problem,
    at: Instant,
}

/// The problems and refusals that were told last.
#[derive(Default)]
pub(crate) struct Told {
    /// Per source with a problem: that which was told last.
    problems: Mutex<HashMap<RequestKey, Last>>,
    /// The clusters that have refused an event.
    refused: Mutex<HashSet<ClusterName>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    /// Notes a problem of a source. Returns whether it is to be told, because it is another one than the last. Otherwise it gets
    /// the words in which it was told.
    pub(crate) fn is_new(&self, source: &RequestKey, problem: &mut Problem) -> bool {
        let at = Instant::now();
        let problem_now = problem.clone();
        match lock(&self.problems).entry(source.clone()) {
            Entry::Occupied(mut last) => {
                let told = &last.get().problem;
                let is_same = (told.reason, told.generation) == (problem.reason, problem.generation);
                let stays = is_same && problem.generation.is_some() && at - last.get().at < STAYS;
                if told == problem || stays {
                    problem.message.clone_from(&told.message);
                    return false;
                }
                last.insert(Last {
                    problem: problem_now,
                    at,
                });
            }
            Entry::Vacant(none) => {
                none.insert(Last {
                    problem: problem_now,
                    at,
                });
            }
        }
        true
    }

    /// Notes that a source has no problem. Returns whether it had one.
    pub(crate) fn is_over(&self, source: &RequestKey) -> bool {
        lock(&self.problems).remove(source).is_some()
    }

    /// Whether this is the first event that the cluster has refused.
    pub(crate) fn is_first_refusal(&self, cluster: &ClusterName) -> bool {
        lock(&self.refused).insert(cluster.clone())
    }

    /// Forgets a source that is gone.
    pub(crate) fn forget(&self, source: &RequestKey) {
        lock(&self.problems).remove(source);
    }

    /// Forgets a cluster that has left, with its sources.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        lock(&self.problems).retain(|source, _| source.cluster != *cluster);
        lock(&self.refused).remove(cluster);
    }
}

#[cfg(test)]
mod tests {
    use mcr::ObjectKey;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_told_once_and_so_is_its_end() {
        let told = Told::default();
        let cluster = ClusterName::new("team-a").unwrap();
        let source = RequestKey::new(cluster.clone(), ObjectKey::cluster_scoped("db"));
        let problem = |message: &str, generation| Problem {
            reason: "RequestFailed",
            message: message.to_owned(),
            generation: Some(generation),
        };
        let tell = |message: &str, generation| {
            let mut problem = problem(message, generation);
            (told.is_new(&source, &mut problem), problem.message)
        };
        assert!(!told.is_over(&source), "it never had one");
        assert_eq!(tell("port 1", 1), (true, "port 1".to_owned()));
        assert_eq!(tell("port 1", 1), (false, "port 1".to_owned()));
        assert_eq!(
            tell("port 2", 1),
            (false, "port 1".to_owned()),
            "the words differ"
        );
        assert_eq!(
            tell("port 3", 2),
            (true, "port 3".to_owned()),
            "the source differs"
        );
        let mut other = problem("port 3", 2);
        other.reason = "ClusterAway";
        assert!(told.is_new(&source, &mut other));
        tokio::time::advance(STAYS).await;
        other.message = "port 4".to_owned();
        assert!(told.is_new(&source, &mut other), "a minute later");
        assert!(told.is_over(&source));
        assert!(!told.is_over(&source));
        assert!(tell("port 4", 2).0);
        told.forget_cluster(&cluster);
        assert!(lock(&told.problems).is_empty());
    }
}
