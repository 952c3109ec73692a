//! How long things take in a controller.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcr_core::ClusterName;
use slab::Slab;
use tokio::time::Instant;

use super::{member::lock, run::Job};

/// Durations counted by how long they are.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One more than there are bounds: the last is for what is longer than all of them.
    buckets: [AtomicU64; Histogram::BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// A [`Histogram`] at one moment.
#[cfg(any(test, feature = "metrics"))]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistogramRead {
    /// In seconds.
    pub(crate) sum: f64,
    pub(crate) count: u64,
    /// How many were at most as long as each bound and longer than the one before.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// From a cached look to a call that hangs, in seconds.
    const BOUNDS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];

    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = self.buckets.get(at.unwrap_or(Self::BOUNDS.len())) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn read(&self) -> HistogramRead {
        let bounds = Self::BOUNDS.into_iter().chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        HistogramRead {
            sum: Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64(),
            // Added up rather than counted by itself: it never contradicts the buckets.
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

/// A reconcile that runs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunningRequest {
    /// The cluster.
    pub cluster: ClusterName,
    /// The object: `namespace/name`, or `name`.
    pub object: String,
    /// For how many seconds it has been running.
    pub seconds: f64,
}

/// The reconciles that run, those of clusters that have left included, and since when.
#[derive(Debug, Default)]
pub(crate) struct Runs(Mutex<Slab<(Instant, Job)>>);

/// Room for as many is kept.
const ROOM: usize = 64;

impl Runs {
    /// A reconcile begins. Returns its number, to be told back with [`end`](Self::end).
    pub(crate) fn begin(&self, now: Instant, work: Job) -> usize {
        lock(&self.0).insert((now, work))
    }

    /// Its work is over.
    pub(crate) fn end(&self, number: usize) -> Option<Job> {
        let mut runs = lock(&self.0);
        let (_, work) = runs.try_remove(number)?;
        if runs.is_empty() && runs.capacity() > ROOM {
            *runs = Slab::new();
        }
        Some(work)
    }

    /// The one that has been running longest. Looks at every one: for metrics.
    pub(crate) fn longest(&self) -> Option<RunningRequest> {
        let runs = lock(&self.0);
        let (_, (since, work)) = runs.iter().min_by_key(|(_, (since, _))| *since)?;
        Some(RunningRequest {
            cluster: work.cluster.clone(),
            object: work.key.to_string(),
            seconds: since.elapsed().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::ObjectKey;

    use super::*;
    use crate::queue::{Priority, QueueConfig, QueueCore};

    #[test]
    fn durations_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for millis in [0, 1, 2, 5_000, 10_000_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let read = histogram.read();
        let filled: Vec<_> = read.buckets.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [&(0.001, 2), &(0.005, 1), &(5.0, 1), &(f64::INFINITY, 1)]);
        assert_eq!((read.count, read.sum), (5, 10_005.003));
    }

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
        // Where the first one was.
        let second = runs.begin(Instant::now(), work("b"));
        let longest = runs.longest().unwrap();
        assert_eq!((longest.object.as_str(), longest.seconds), ("default/a", 3.0));
        assert_eq!(runs.end(first).unwrap().key.name.as_ref(), "a");
        assert_eq!(runs.longest().unwrap().object, "default/b");
        runs.end(second);
        assert_eq!((runs.longest(), runs.end(second)), (None, None));
    }
}
