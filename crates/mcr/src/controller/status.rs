//! What can be seen of a controller.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mcr_core::ClusterName;

use super::{
    engine::Core,
    gate::GateStatus,
    measure::{Histogram, RunningRequest, Runs},
    member::lock,
};

/// The state of a controller at one moment; made by [`ControllerHandle::status`].
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The clusters it works on, by name.
    pub clusters: BTreeMap<ClusterName, ControllerClusterStatus>,
    /// Its queue.
    pub queue: QueueStatus,
    /// What it did since it was built.
    pub counts: ControllerCounts,
}

/// The state of a controller's queue, all clusters together.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueueStatus {
    /// How many requests are ready, also those of clusters whose gate is closed or that can't be reached.
    pub ready: usize,
    /// How many requests wait for their time.
    pub delayed: usize,
    /// How many reconciles run, those of clusters that have left included.
    pub running: usize,
    /// For how many seconds the request has waited that has been ready longest, of those that could run.
    pub oldest_wait: Option<f64>,
    /// The reconcile that has been running longest.
    pub longest_running: Option<RunningRequest>,
}

/// The state of a controller in one cluster.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerClusterStatus {
    /// Whether requests are dispatched, and if not, which watches they wait for.
    #[serde(flatten)]
    pub gate: GateStatus,
    /// Whether requests wait because the cluster can't be reached or is suspended.
    pub parked: bool,
    /// How many requests are ready.
    pub ready: usize,
    /// How many requests wait for their time.
    pub delayed: usize,
    /// How many reconciles run.
    pub running: usize,
}

/// What a controller did since it was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerCounts {
    /// Reconciles that ended, however they did, save the aborted ones.
    pub reconciles: u64,
    /// Reconciles that ended well.
    pub successes: u64,
    /// Reconciles that ended with an error; panics and timeouts are not among them.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that took longer than the controller's timeout.
    pub timeouts: u64,
    /// Reconciles that were aborted because they did not end in time after their cluster left.
    pub aborted: u64,
    /// Reconciles that came to nothing: their cluster left meanwhile, or the object can't be decoded.
    pub dropped: u64,
    /// Reconciles that are tried again after a pause that grows, or that their error policy chose.
    pub retries: u64,
    /// Requests asked for.
    pub requested: u64,
    /// Requests asked for while the same one was waiting already.
    pub coalesced: u64,
    /// Objects that could not be decoded, each counted once per change.
    pub undecodable: u64,
    /// Panics of mappers, predicates, selectors and other functions the controller was given.
    pub callback_panics: u64,
    /// Requests for clusters that the controller does not select, or for which too many were waiting already.
    pub misdirected: u64,
}

/// Counts as they happen.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reconciles: AtomicU64,
    pub(crate) successes: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) undecodable: AtomicU64,
    pub(crate) callback_panics: AtomicU64,
    pub(crate) misdirected: AtomicU64,
    pub(crate) runs: Runs,
    /// How long reconciles took that ended.
    pub(crate) durations: Histogram,
    /// How long requests were ready before they were dispatched.
    pub(crate) waits: Histogram,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    fn read(&self, queue: &crate::queue::Counters) -> ControllerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControllerCounts {
            reconciles: read(&self.reconciles),
            successes: read(&self.successes),
            dropped: read(&self.dropped),
            retries: queue.retries,
            requested: queue.adds,
            coalesced: queue.coalesced,
            errors: read(&self.errors),
            panics: read(&self.panics),
            timeouts: read(&self.timeouts),
            aborted: read(&self.aborted),
            undecodable: read(&self.undecodable),
            callback_panics: read(&self.callback_panics),
            misdirected: read(&self.misdirected),
        }
    }
}

/// Shows what a controller does, before, while and after it runs. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle(pub(crate) Arc<Core>);

impl ControllerHandle {
    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.0.plan.name
    }

    /// Its state now.
    pub fn status(&self) -> ControllerStatus {
        let members: Vec<_> = self.0.members().values().cloned().collect();
        let queue = &self.0.queue;
        let clusters: BTreeMap<_, _> = members
            .iter()
            .filter_map(|member| {
                let name = member.cluster.name();
                let depth = queue.depth(name)?;
                let status = ControllerClusterStatus {
                    gate: lock(&member.gate).status(),
                    parked: depth.parked || depth.releasing,
                    ready: depth.ready,
                    delayed: depth.delayed,
                    running: depth.running,
                };
                Some((name.clone(), status))
            })
            .collect();
        ControllerStatus {
            name: self.0.plan.name.clone(),
            queue: QueueStatus {
                ready: clusters.values().map(|cluster| cluster.ready).sum(),
                delayed: clusters.values().map(|cluster| cluster.delayed).sum(),
                running: queue.running(),
                oldest_wait: queue.oldest_wait().map(|wait| wait.as_secs_f64()),
                longest_running: self.0.counters.runs.longest(),
            },
            clusters,
            counts: self.0.counters.read(&queue.counters()),
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn durations(&self) -> super::measure::HistogramRead {
        self.0.counters.durations.read()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn waits(&self) -> super::measure::HistogramRead {
        self.0.counters.waits.read()
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerHandle").field(&self.name()).finish()
    }
}
