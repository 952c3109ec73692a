//! The reconciles that are running.

use std::sync::Arc;

use mcr_core::{ClusterName, ObjectKey};
use parking_lot::Mutex;
use slab::Slab;
use tokio::time::Instant;

use crate::{controller::member::Member, queue::Work};

/// A dispatched request. Its epoch is the member for which it runs.
pub(crate) type Job = Work<ClusterName, ObjectKey, Arc<Member>>;

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
#[derive(Default)]
pub(crate) struct Runs(Mutex<Slab<(Instant, Job)>>);

/// An empty collection of at most this capacity keeps its memory.
const ROOM: usize = 64;

impl Runs {
    /// Records the start of a reconcile. Returns its number for [`end`](Self::end).
    pub(crate) fn begin(&self, now: Instant, job: Job) -> usize {
        self.0.lock().insert((now, job))
    }

    /// Records the end of a reconcile and returns its request.
    pub(crate) fn end(&self, number: usize) -> Option<Job> {
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
