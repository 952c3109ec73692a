//! The parts of a fleet that engagements use.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{counts::Counts, registry::Registry, resources::Resources, settings::FleetSettings};
use crate::ClusterName;

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

impl fmt::Debug for FleetContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.registry.len())
            .finish_non_exhaustive()
    }
}
