use std::{fmt, sync::Arc};

use mcr_core::{BrokenCluster, ClusterName, ClusterSpec};

use crate::registry::Registry;

/// Adds and removes the clusters of a [`ClustersProvider`](crate::ClustersProvider).
///
/// Clones share their clusters. Every method can be called before, during and after a discovery, returns at once, and
/// needs no runtime. So it can be called in synchronous code, under a lock, or in a `Drop`.
#[derive(Clone)]
pub struct ClustersHandle(pub(crate) Arc<Registry>);

impl ClustersHandle {
    /// Adds a cluster, or updates the cluster of the same name.
    ///
    /// Returns whether the name is new. If the fleet has not read an earlier change of the cluster yet, it only
    /// receives this change.
    pub fn add(&self, spec: ClusterSpec) -> bool {
        self.0.add(spec)
    }

    /// Removes a cluster. Returns whether there was a cluster of that name.
    pub fn remove(&self, name: &str) -> bool {
        self.0.remove(name)
    }

    /// Marks a cluster as broken, because its description is unusable.
    ///
    /// `object` names the description, and `error` describes what is wrong with it, as text for people. The fleet
    /// shows both, so they must not contain secrets. A cluster that was added before keeps its last usable spec. To
    /// repair the cluster, add it again; otherwise remove it.
    pub fn broken(&self, name: ClusterName, object: impl Into<Arc<str>>, error: impl fmt::Display) {
        self.0.broken(BrokenCluster::new(name, object, error));
    }

    /// The names of all clusters, including broken ones, sorted.
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
