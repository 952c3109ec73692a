//! The status of all clusters for users. No I/O.

use std::{collections::BTreeMap, mem::take, sync::Arc};

use mcr_core::ClusterName;
use parking_lot::Mutex;

use crate::known::Known;

/// The status of one cluster. [`AboutHandle::statuses`](crate::AboutHandle::statuses) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The id of the cluster: its property [`CLUSTER_ID`](crate::CLUSTER_ID).
    pub cluster_id: Option<Arc<str>>,
    /// The ClusterSet of the cluster: its property [`CLUSTER_SET`](crate::CLUSTER_SET).
    pub cluster_set: Option<Arc<str>>,
    /// Whether the cluster has answered a probe. An answer that the cluster does not serve the About API, or that the
    /// rights are missing, counts too.
    pub answered: bool,
    /// Why the last probe failed. `None` if it succeeded, or if no probe has ended since the access changed.
    pub last_error: Option<Arc<str>>,
}

/// What the provider keeps between discoveries: the statuses that users read, and what the last discovery knew.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) statuses: Mutex<BTreeMap<ClusterName, MemberStatus>>,
    memory: Mutex<BTreeMap<ClusterName, Known>>,
}

impl Shared {
    pub(crate) fn take_memory(&self) -> BTreeMap<ClusterName, Known> {
        take(&mut self.memory.lock())
    }

    pub(crate) fn set_memory(&self, memory: BTreeMap<ClusterName, Known>) {
        *self.memory.lock() = memory;
    }

    /// The names of all clusters with a status.
    pub(crate) fn names(&self) -> Vec<ClusterName> {
        self.statuses.lock().keys().cloned().collect()
    }
}
