//! The events of a fleet.

use std::{collections::HashMap, sync::Arc};

use super::{cluster::Cluster, context::FleetContext, epoch::Epoch, observers::Pending};
use mcr_access::ClusterName;

/// A change of one cluster of the fleet.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FleetEvent {
    /// The cluster has joined the fleet. It may not be connected yet.
    Engaged(Cluster),
    /// The state, labels, properties or default namespace of the cluster have changed, or which checks it passes. One event may
    /// stand for several changes.
    Updated(Cluster),
    /// The cluster has left, or another cluster has taken its name, for which an [`Engaged`](Self::Engaged) follows. The
    /// objects of the cluster are not deleted.
    Disengaged {
        /// The name of the cluster.
        name: ClusterName,
        /// The number of the engagement that has ended.
        epoch: Epoch,
    },
}

/// A subscription to the events of a fleet. [`Fleet::subscribe`](super::Fleet::subscribe) returns it.
///
/// The engaged clusters come first, each as [`FleetEvent::Engaged`]. The events of each cluster are in order. A slow
/// subscriber misses intermediate changes, but gets the newest state; the fleet never waits for it.
#[derive(Debug)]
pub struct FleetEvents {
    fleet: Arc<FleetContext>,
    pending: Arc<Pending>,
    seen: HashMap<ClusterName, Epoch>,
}

impl FleetEvents {
    pub(crate) fn new(fleet: Arc<FleetContext>) -> Self {
        let pending = fleet.resources.observers.subscribe();
        for cluster in fleet.registry.clusters() {
            pending.push(cluster.name());
        }
        Self {
            fleet,
            pending,
            seen: HashMap::new(),
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> FleetEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.pending.pushed().await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<FleetEvent> {
        while let Some(name) = self.pending.pop() {
            let known = self.seen.get(&name).copied();
            let now = self.fleet.registry.get(&name);
            match (known, now) {
                (None, Some(cluster)) => {
                    self.seen.insert(name, cluster.epoch());
                    return Some(FleetEvent::Engaged(cluster));
                }
                (Some(epoch), Some(cluster)) if cluster.epoch() == epoch => {
                    return Some(FleetEvent::Updated(cluster));
                }
                (Some(epoch), now) => {
                    self.seen.remove(&name);
                    if now.is_some() {
                        self.pending.push(&name);
                    }
                    return Some(FleetEvent::Disengaged { name, epoch });
                }
                (None, None) => {}
            }
        }
        None
    }
}
