//! The reconciles that are running.

use std::sync::Arc;

use mcr_core::{ClusterName, ObjectKey};
use parking_lot::Mutex;
use slab::Slab;
use tokio::time::Instant;

use crate::{controller::member::Member, queue::Work};

/// A dispatched request. Its epoch is the member for which it runs.
pub(crate) type Job<E = Arc<Member>> = Work<ClusterName, ObjectKey, E>;

/// A reconcile that is running.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunningRequest {
    /// The cluster of the request.
    pub cluster: ClusterName,
    /// The object: `namespace/name`, or `name`.
    pub object: String,
    /// How long the reconcile has been running, in seconds.
    pub seconds: f64,
}

/// The running reconciles and their start times, those of clusters that have left included.
pub(crate) struct Runs<E = Arc<Member>>(Mutex<Slab<(Instant, Job<E>)>>);

/// An empty collection of at most this capacity keeps its memory.
const ROOM: usize = 64;

impl<E> Default for Runs<E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<E> Runs<E> {
    /// Records the start of a reconcile. Returns its number for [`end`](Self::end).
    pub(crate) fn begin(&self, now: Instant, job: Job<E>) -> usize {
        self.0.lock().insert((now, job))
    }

    /// Records the end of a reconcile and returns its request.
    pub(crate) fn end(&self, number: usize) -> Option<Job<E>> {
        let mut runs = self.0.lock();
        let (_, job) = runs.try_remove(number)?;
        if runs.is_empty() && runs.capacity() > ROOM {
            *runs = Slab::new();
        }
        Some(job)
    }

    /// The reconcile that has been running longest. Reads every one, so it is for metrics.
    pub(crate) fn longest(&self) -> Option<RunningRequest> {
        let runs = self.0.lock();
        let (_, (since, job)) = runs.iter().min_by_key(|(_, (since, _))| *since)?;
        Some(RunningRequest {
            cluster: job.cluster.clone(),
            object: job.key.to_string(),
            seconds: since.elapsed().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::queue::{Priority, QueueConfig, QueueCore};

    #[tokio::test(start_paused = true)]
    async fn the_longest_run_is_the_first_that_began() {
        let now = Instant::now();
        let mut queue = QueueCore::new(QueueConfig::default(), now);
        let berlin = ClusterName::new("berlin").unwrap();
        queue.engage(berlin.clone(), 1);
        let mut work = |name: &str| {
            queue.add(
                &berlin,
                ObjectKey::namespaced("default", name),
                Priority::Live,
                now,
            );
            queue.pop(now).unwrap()
        };
        let runs = Runs::default();
        assert_eq!(runs.longest(), None);
        let gone = runs.begin(Instant::now(), work("gone"));
        tokio::time::advance(Duration::from_secs(1)).await;
        let first = runs.begin(Instant::now(), work("a"));
        runs.end(gone);
        tokio::time::advance(Duration::from_secs(3)).await;
        // Gets the slot of `gone` in the slab.
        let second = runs.begin(Instant::now(), work("b"));
        let longest = runs.longest().unwrap();
        assert_eq!((longest.object.as_str(), longest.seconds), ("default/a", 3.0));
        assert_eq!(runs.end(first).unwrap().key.name.as_ref(), "a");
        assert_eq!(runs.longest().unwrap().object, "default/b");
        runs.end(second);
        assert_eq!((runs.longest(), runs.end(second)), (None, None));
    }
}
