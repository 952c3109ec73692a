//! How sources ask for requests.

use std::{fmt, sync::Arc, time::Duration};

use mcr_core::{Cluster, ObjectKey};

use super::{engine::Engine, member::Member};
use crate::{RequestKey, queue::Priority, request::Target};

/// Asks a controller for requests in any of its clusters. Cheap to clone; never waits.
#[derive(Clone)]
pub struct Enqueue(pub(crate) Arc<Engine>);

impl Enqueue {
    /// Asks for a request now. Returns whether it was taken: not if the controller does not select the cluster,
    /// or stops. A request for a cluster that has not joined yet is kept for it.
    pub fn add(&self, key: RequestKey) -> bool {
        self.0.enqueue(key, Priority::Live, Duration::ZERO)
    }

    /// Asks for a request after a time. Only clusters that are there can be asked for.
    pub fn add_after(&self, key: RequestKey, delay: Duration) -> bool {
        self.0.enqueue(key, Priority::Live, delay)
    }

    /// Asks for a request that gives way to those for live changes: for what is listed or synced periodically.
    pub fn add_initial(&self, key: RequestKey) -> bool {
        self.0.enqueue(key, Priority::Initial, Duration::ZERO)
    }
}

impl fmt::Debug for Enqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Enqueue").field(&self.0.core.plan.name).finish()
    }
}

/// Asks a controller for requests on behalf of one engagement of one cluster. Cheap to clone; never waits.
///
/// After the cluster has left, requests in it are refused, also when it has come back.
#[derive(Clone)]
pub struct ClusterEnqueue {
    pub(crate) engine: Arc<Engine>,
    pub(crate) member: Arc<Member>,
}

impl ClusterEnqueue {
    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.member.cluster
    }

    /// Asks for a request now: in this cluster (an [`ObjectKey`]) or in another (a [`RequestKey`]). Returns
    /// whether it was taken.
    pub fn add(&self, target: impl Into<Target>) -> bool {
        self.engine
            .enqueue_from(&self.member, target.into(), Priority::Live, Duration::ZERO)
    }

    /// Asks for a request in this cluster after a time.
    pub fn add_after(&self, key: ObjectKey, delay: Duration) -> bool {
        self.engine
            .enqueue_from(&self.member, Target::Here(key), Priority::Live, delay)
    }

    /// Asks for a request that gives way to those for live changes.
    pub fn add_initial(&self, target: impl Into<Target>) -> bool {
        self.engine
            .enqueue_from(&self.member, target.into(), Priority::Initial, Duration::ZERO)
    }
}

impl fmt::Debug for ClusterEnqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterEnqueue")
            .field(&self.engine.core.plan.name)
            .field(self.member.cluster.name())
            .finish()
    }
}
