//! What is shown of all clusters. No I/O.

use std::{collections::BTreeMap, mem::take, sync::Arc};

use mcr_core::ClusterName;
use parking_lot::Mutex;

use crate::known::Known;

/// What is known of one cluster. [`AboutHandle::statuses`](crate::AboutHandle::statuses) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The id of the cluster: its property [`CLUSTER_ID`](crate::CLUSTER_ID).
    pub cluster_id: Option<Arc<str>>,
    /// The ClusterSet of the cluster: its property [`CLUSTER_SET`](crate::CLUSTER_SET).
    pub cluster_set: Option<Arc<str>>,
    /// Whether the cluster has answered a probe. An answer that the cluster has no About API counts, and one that the rights are
    /// missing.
    pub answered: bool,
    /// Why the last probe failed. `None` if it was answered, or if no probe has ended since the access changed.
    pub last_error: Option<Arc<str>>,
}

/// What one discovery leaves to the next, and what is shown of the clusters.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) statuses: Mutex<BTreeMap<ClusterName, MemberStatus>>,
    memory: Mutex<BTreeMap<ClusterName, Known>>,
}

impl Shared {
    pub(crate) fn take_memory(&self) -> BTreeMap<ClusterName, Known> {
        take(&mut self.memory.lock())
    }

    pub(crate) fn leave_memory(&self, memory: BTreeMap<ClusterName, Known>) {
        *self.memory.lock() = memory;
    }

    /// The names of all clusters that are shown.
    pub(crate) fn names(&self) -> Vec<ClusterName> {
        self.statuses.lock().keys().cloned().collect()
    }
}
