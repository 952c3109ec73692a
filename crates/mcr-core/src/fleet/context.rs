//! The parts of a fleet that engagements use.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    cluster::Cluster,
    counts::Counts,
    life::End,
    registry::Registry,
    resources::Resources,
    settings::FleetSettings,
    state::{ClusterState, Published},
};
use mcr_access::ClusterName;

/// The parts of a fleet that engagements use: the resources of its clusters, and the registry of the clusters.
pub(crate) struct FleetContext {
    pub(crate) resources: Arc<Resources>,
    pub(crate) registry: Registry,
}

impl FleetContext {
    pub(crate) fn new(settings: FleetSettings) -> Self {
        Self {
            resources: Arc::new(Resources::new(settings)),
            registry: Registry::default(),
        }
    }

    pub(crate) fn settings(&self) -> &FleetSettings {
        &self.resources.settings
    }

    /// Cancelled when the fleet stops.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.resources.token
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.resources.observers.counts
    }

    /// Notifies all subscribers that a cluster has changed.
    pub(crate) fn publish(&self, name: &ClusterName) {
        self.resources.observers.publish(name);
    }

    /// The time of silence after which a cluster is probed.
    pub(crate) fn probe_after(&self) -> Duration {
        self.settings().probe_after_among(self.registry.connections())
    }
}

/// The steps of draining a cluster, in this order.
impl FleetContext {
    /// Logs that a cluster joins. A connection of a provider is no cluster to people.
    pub(super) fn log_join(&self, cluster: &Cluster, provider: &str) {
        let (name, epoch) = (cluster.name(), cluster.epoch());
        if self.settings().internal {
            tracing::debug!(connection = %name, provider, "a provider opens a connection");
        } else {
            tracing::info!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), provider, %epoch, "cluster joins the fleet");
        }
    }

    /// Logs that a cluster has entered another state. A connection is no cluster to people.
    pub(super) fn log_state(&self, cluster: &Cluster, before: &ClusterState, state: &ClusterState) {
        let name = cluster.name();
        if before.same_kind(state) {
            tracing::debug!(cluster = %name, %state, "the reason of the state has changed");
        } else if let ClusterState::Unreachable { reason } = state {
            tracing::warn!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), from = before.as_str(), %reason, "cluster is unreachable");
        } else if self.settings().internal || cluster.is_endpoint() {
            tracing::debug!(connection = %name, from = before.as_str(), %state, "connection state");
        } else {
            tracing::info!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), from = before.as_str(), %state, "cluster state");
        }
    }

    /// Takes a cluster out of the fleet: it accepts no new work from now on.
    pub(super) fn begin_drain(&self, cluster: &Cluster, end: End) {
        let (name, epoch) = (cluster.name(), cluster.epoch());
        // If another cluster may answer at the address already, no further request may go there.
        cluster.publish(Published::draining(end == End::Replaced));
        self.registry.insert_draining(cluster);
        // Before subscribers are notified: once they know that the cluster has left, none of its stores is readable.
        cluster.close();
        self.registry.remove(cluster);
        if self.settings().internal {
            tracing::debug!(connection = %name, reason = ?end, "a connection of a provider is closed");
        } else if end == End::Stopped && cluster.placement().is_some() {
            tracing::debug!(cluster = %name, %epoch, "cluster leaves the fleet, which stops");
        } else {
            tracing::info!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), %epoch, reason = ?end, "cluster leaves the fleet");
        }
        self.publish(name);
    }

    /// Waits until the tasks of a cluster have ended, for a limited time.
    pub(super) async fn wait_for_tasks(&self, cluster: &Cluster) {
        // Owners of work abort it after the grace period. A task that outlives the additional seconds is a bug.
        let limit = self.settings().drain_grace + Duration::from_secs(5);
        if timeout(limit, cluster.tasks().wait()).await.is_err() {
            tracing::error!(cluster = %cluster.name(), epoch = %cluster.epoch(), tasks = cluster.tasks().len(), "work for the cluster is still running {} s after it left", limit.as_secs());
        }
    }

    /// Closes the transport of a cluster and forgets the cluster.
    pub(super) fn end_drain(&self, cluster: &Cluster) {
        let (name, epoch) = (cluster.name(), cluster.epoch());
        self.registry.remove_draining(cluster);
        cluster.publish(Published::gone());
        if self.settings().internal || cluster.placement().is_some() {
            tracing::debug!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), %epoch, "cluster is gone");
        } else {
            tracing::info!(cluster = %name, display_name = cluster.property(crate::spec::DISPLAY_NAME), %epoch, "cluster is gone");
        }
        self.publish(name);
    }
}

impl fmt::Debug for FleetContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.registry.len())
            .finish_non_exhaustive()
    }
}
