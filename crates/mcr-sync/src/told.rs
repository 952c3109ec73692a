//! What people were told about sources, so that a retry does not tell it again.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mcr::{ClusterName, RequestKey};

/// The problems and refusals that were told last.
#[derive(Default)]
pub(crate) struct Told {
    /// Per source with a problem: the hash of the problem.
    problems: Mutex<HashMap<RequestKey, u64>>,
    /// The clusters that have refused an event.
    refused: Mutex<HashSet<ClusterName>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    /// Whether this problem of a source is another one than the last. `None`: it has none.
    pub(crate) fn is_new(&self, source: &RequestKey, problem: Option<(&str, &str)>) -> bool {
        let mut problems = lock(&self.problems);
        let Some(problem) = problem else {
            return problems.remove(source).is_some();
        };
        let mut hasher = DefaultHasher::new();
        problem.hash(&mut hasher);
        let hash = hasher.finish();
        problems.insert(source.clone(), hash) != Some(hash)
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

    #[test]
    fn a_problem_is_told_once_and_so_is_its_end() {
        let told = Told::default();
        let cluster = ClusterName::new("team-a").unwrap();
        let source = RequestKey::new(cluster.clone(), ObjectKey::cluster_scoped("db"));
        let away = Some(("ClusterAway", "berlin is away"));
        assert!(!told.is_new(&source, None), "it never had one");
        assert!(told.is_new(&source, away));
        assert!(!told.is_new(&source, away));
        assert!(told.is_new(&source, Some(("ClusterAway", "lyon is away"))));
        assert!(told.is_new(&source, None));
        assert!(!told.is_new(&source, None));
        assert!(told.is_new(&source, away));
        told.forget_cluster(&cluster);
        assert!(lock(&told.problems).is_empty());
    }
}
