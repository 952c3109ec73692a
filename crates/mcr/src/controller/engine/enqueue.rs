//! Handles for sources to add requests.

use std::{fmt, sync::Arc, time::Duration};

use mcr_core::{Cluster, ObjectKey};

use super::Engine;
use crate::{
    controller::member::Member,
    queue::Priority,
    request::{RequestKey, Target},
};

/// Adds requests to a controller, in any of its clusters. Cheap to clone; no call waits.
#[derive(Clone)]
pub struct Enqueue(pub(crate) Arc<Engine>);

impl Enqueue {
    /// Adds a request, to be dispatched now. A request for a cluster that has not joined yet is kept until it joins.
    ///
    /// Returns `false` if the request was dropped: the controller does not select the cluster, is stopping, or keeps too
    /// many requests for clusters that have not joined.
    pub fn add(&self, key: RequestKey) -> bool {
        self.0.enqueue(key, Priority::Live, Duration::ZERO)
    }

    /// Adds a request, to be dispatched after `delay`. Returns `false` if the cluster has not joined, or as for
    /// [`add`](Self::add).
    pub fn add_after(&self, key: RequestKey, delay: Duration) -> bool {
        self.0.enqueue(key, Priority::Live, delay)
    }

    /// Adds a request with the priority of a first listing, below that of live changes: for lists and periodic resyncs.
    /// Otherwise as [`add`](Self::add).
    pub fn add_initial(&self, key: RequestKey) -> bool {
        self.0.enqueue(key, Priority::Initial, Duration::ZERO)
    }
}

impl fmt::Debug for Enqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Enqueue")
            .field(&self.0.core.plan.settings.name)
            .finish()
    }
}

/// Adds requests to a controller on behalf of one engagement of one cluster. Cheap to clone; no call waits.
///
/// After the cluster has left the controller, every call returns `false`, even if the cluster joins again.
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

    /// Adds a request, to be dispatched now: in this cluster (an [`ObjectKey`]) or in another (a [`RequestKey`]). Returns
    /// `false` if the request was dropped, as [`Enqueue::add`] does.
    pub fn add(&self, target: impl Into<Target>) -> bool {
        self.engine
            .enqueue_from(&self.member, target.into(), Priority::Live, Duration::ZERO)
    }

    /// Adds a request in this cluster, to be dispatched after `delay`. Returns `false` if the request was dropped.
    pub fn add_after(&self, key: ObjectKey, delay: Duration) -> bool {
        self.engine
            .enqueue_from(&self.member, Target::Here(key), Priority::Live, delay)
    }

    /// Adds a request with the priority of a first listing, below that of live changes. Otherwise as [`add`](Self::add).
    pub fn add_initial(&self, target: impl Into<Target>) -> bool {
        self.engine
            .enqueue_from(&self.member, target.into(), Priority::Initial, Duration::ZERO)
    }
}

impl fmt::Debug for ClusterEnqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterEnqueue")
            .field(&self.engine.core.plan.settings.name)
            .field(self.member.cluster.name())
            .finish()
    }
}
