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

use super::{engine::Core, gate::GateStatus, member::lock};

/// The state of a controller at one moment; made by [`ControllerHandle::status`].
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The clusters it works on, by name.
    pub clusters: BTreeMap<ClusterName, ControllerClusterStatus>,
    /// What it did since it was built.
    pub counts: ControllerCounts,
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
    /// Reconciles that ended, however they did.
    pub reconciles: u64,
    /// Reconciles that ended with an error; panics and timeouts are not among them.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that took longer than the controller's timeout.
    pub timeouts: u64,
    /// Reconciles that were aborted because they did not end in time after their cluster left.
    pub aborted: u64,
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
    pub(crate) errors: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) undecodable: AtomicU64,
    pub(crate) callback_panics: AtomicU64,
    pub(crate) misdirected: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    fn read(&self) -> ControllerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControllerCounts {
            reconciles: read(&self.reconciles),
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
        let clusters = members
            .iter()
            .filter_map(|member| {
                let name = member.cluster.name();
                let depth = self.0.queue.depth(name)?;
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
            clusters,
            counts: self.0.counters.read(),
        }
    }
}

impl fmt::Debug for ControllerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControllerHandle").field(&self.name()).finish()
    }
}
