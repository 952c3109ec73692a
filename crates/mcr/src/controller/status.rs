//! The state of a controller, for people and programs.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use mcr_core::ClusterName;
use mcr_lease::Leadership;
use tokio::time::Instant;

use super::{
    engine::{Core, counters::ControllerCounts, running::RunningRequest},
    member::{
        Member,
        failing::{FailingRequest, MOST_LISTED},
        gate::{GateStatus, GatingWatch},
    },
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
    /// The number of clusters in which [`Controller::on_deselected`](crate::Controller::on_deselected) has not succeeded yet: it waits
    /// or fails, and the log has the reason.
    pub pending_clean_ups: usize,
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
    /// The requests that fail, those with the most attempts first. A status lists the worst 100 of all clusters together.
    pub failing: Vec<FailingRequest>,
    /// The number of requests that fail, those that are not listed included.
    pub failing_count: usize,
}

/// A handle to read the state of a controller before, during and after its run. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle(pub(crate) Arc<Core>);

impl ControllerHandle {
    /// The name of the controller.
    pub fn name(&self) -> &str {
        &self.0.plan.settings.name
    }

    /// The current state of the controller.
    pub fn status(&self) -> ControllerStatus {
        let queue = &self.0.queue;
        let members = queue.clusters();
        let mut failing = self.failing(&members);
        let clusters: BTreeMap<_, _> = members
            .iter()
            .filter_map(|(name, member)| {
                let depth = queue.depth(name)?;
                let (failing_count, failing) = failing.remove(name).unwrap_or_default();
                let status = ControllerClusterStatus {
                    gate: member.gate.lock().status(),
                    parked: depth.parked || depth.releasing,
                    ready: depth.ready,
                    delayed: depth.delayed,
                    running: depth.running,
                    failing,
                    failing_count,
                };
                Some((name.clone(), status))
            })
            .collect();
        ControllerStatus {
            name: self.0.plan.settings.name.clone(),
            queue: QueueStatus {
                ready: clusters.values().map(|cluster| cluster.ready).sum(),
                delayed: clusters.values().map(|cluster| cluster.delayed).sum(),
                running: queue.running(),
                oldest_wait: queue.oldest_wait().map(|wait| wait.as_secs_f64()),
                longest_running: self.0.counters.runs.longest(),
            },
            clusters,
            gated_by: self.0.gating.waiting(),
            pending_clean_ups: self.0.pending_clean_ups.load(Ordering::SeqCst),
            counts: self.0.counters.read(&queue.counters()),
        }
    }

    /// By cluster: the number of failing requests, and those of them that are listed.
    fn failing(
        &self,
        members: &[(ClusterName, Arc<Member>)],
    ) -> BTreeMap<ClusterName, (usize, Vec<FailingRequest>)> {
        let mut worst = Vec::new();
        let mut clusters = BTreeMap::new();
        for (name, member) in members {
            let (count, failing) = member.failing.worst();
            if count > 0 {
                clusters.insert(name.clone(), (count, Vec::new()));
                worst.extend(
                    failing
                        .into_iter()
                        .map(|(key, failing)| (failing.rank(), name, key, failing)),
                );
            }
        }
        worst
            .sort_unstable_by(|(a, in_a, at_a, _), (b, in_b, at_b, _)| (a, in_a, at_a).cmp(&(b, in_b, at_b)));
        let (instant, now) = (Instant::now(), SystemTime::now());
        for (_, name, key, failing) in worst.into_iter().take(MOST_LISTED) {
            let due = self.0.queue.due(name, &key);
            // A key that is retried and unknown to the queue has succeeded just now.
            let due = due.or(failing.is_retried.then_some(instant));
            if let Some((_, listed)) = clusters.get_mut(name) {
                listed.push(FailingRequest {
                    object: key.to_string(),
                    attempt: failing.attempt,
                    error: failing.error.as_ref().to_owned(),
                    since: failing.since,
                    retry_at: due.map(|due| now + due.saturating_duration_since(instant)),
                });
            }
        }
        clusters
    }

    /// The leader election of the manager of this controller.
    pub(crate) fn leadership(&self) -> Option<&Leadership> {
        self.0.leadership.get()
    }

    /// The number of running reconciles that need this process to lead.
    pub(crate) fn running_as_leader(&self) -> usize {
        self.0.needs().map_or(0, |_| self.0.queue.running())
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerHandle").field(&self.name()).finish()
    }
}
