//! The state of a controller, for people and programs.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mcr_core::{ClusterName, internal::lock};

#[cfg(feature = "metrics")]
use super::histogram::HistogramRead;
use super::{
    counters::ControllerCounts, engine::Core, gate::GateStatus, gating::GatingWatch, runs::RunningRequest,
};

/// The state of a controller at one moment. [`ControllerHandle::status`] returns it.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerStatus {
    /// The name of the controller.
    pub name: Arc<str>,
    /// The clusters that the controller works on, by name.
    pub clusters: BTreeMap<ClusterName, ControllerClusterStatus>,
    /// The gating watches that have not listed yet. Until it is empty, the controller dispatches no request, whatever the
    /// gates of its clusters. Empty then for the rest of the run.
    pub gated_by: Vec<GatingWatch>,
    /// The state of its queue.
    pub queue: QueueStatus,
    /// The counters since the controller was built.
    pub counts: ControllerCounts,
}

/// The state of the queue of a controller, in all clusters together.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueueStatus {
    /// The number of ready requests. Requests of clusters that are unreachable or have a closed gate are included.
    pub ready: usize,
    /// The number of requests that wait for the end of a delay.
    pub delayed: usize,
    /// The number of running reconciles, those of clusters that have left included.
    pub running: usize,
    /// The waiting time of the request that has been ready longest, in seconds. Requests of clusters that are
    /// parked or have a closed gate do not count; requests that wait for a [gating watch](ControllerStatus::gated_by) do.
    pub oldest_wait: Option<f64>,
    /// The reconcile that has been running longest.
    pub longest_running: Option<RunningRequest>,
}

/// The state of a controller in one cluster.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerClusterStatus {
    /// Whether requests are dispatched, and if not, the watches that they wait for.
    #[serde(flatten)]
    pub gate: GateStatus,
    /// Whether requests wait because the cluster is unreachable or suspended.
    pub parked: bool,
    /// The number of ready requests.
    pub ready: usize,
    /// The number of requests that wait for the end of a delay.
    pub delayed: usize,
    /// The number of running reconciles.
    pub running: usize,
}

/// A handle to read the state of a controller before, during and after its run. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle(pub(crate) Arc<Core>);

impl ControllerHandle {
    /// The name of the controller.
    pub fn name(&self) -> &str {
        &self.0.plan.name
    }

    /// The current state of the controller.
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
            gated_by: self.0.gating.waiting(),
            counts: self.0.counters.read(&queue.counters()),
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn durations(&self) -> HistogramRead {
        self.0.counters.durations.read()
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn waits(&self) -> HistogramRead {
        self.0.counters.waits.read()
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerHandle").field(&self.name()).finish()
    }
}
