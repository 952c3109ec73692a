use std::{fmt, sync::Arc};

use mcr_core::{BrokenCluster, ClusterName, ClusterSpec};

use crate::registry::Registry;

/// Adds and removes the clusters of a [`ClustersProvider`](crate::ClustersProvider).
///
/// Clones share their clusters. Every method works before, while and after a discovery runs, returns at once
/// and needs no runtime, so it can be called from anywhere: from synchronous code, under a lock, in a drop.
#[derive(Clone)]
pub struct ClustersHandle(pub(crate) Arc<Registry>);

impl ClustersHandle {
    /// Adds a cluster, or updates the one of the same name.
    ///
    /// Returns whether the name is new. If the fleet has not yet looked at an earlier change of the same
    /// cluster it sees only this one.
    pub fn add(&self, spec: ClusterSpec) -> bool {
        self.0.add(spec)
    }

    /// Removes a cluster. Returns whether there was one of that name.
    pub fn remove(&self, name: &ClusterName) -> bool {
        self.0.remove(name)
    }

    /// Says that what describes a cluster can't be used.
    ///
    /// It is shown with its error; if it was added before, its last good description goes on. Adding it again
    /// mends it, removing it takes it away. The error must not hold secrets.
    pub fn broken(&self, name: ClusterName, object: impl Into<Arc<str>>, error: impl fmt::Display) {
        self.0.broken(BrokenCluster::new(name, object, error));
    }

    /// The names of all clusters, broken ones too, sorted.
    pub fn names(&self) -> Vec<ClusterName> {
        self.0.names()
    }
}

impl fmt::Debug for ClustersHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersHandle")
            .field("names", &self.names())
            .finish()
    }
}
