//! Which cluster answers, and whether it is engaged beside the others of the fleet.

use std::sync::Arc;

use super::{
    cluster::Cluster, connection::NewConnection, context::FleetContext, description::Description,
    identities::Claim, identity::KnownIdentity,
};
use crate::access::Access;
use mcr_access::{ClusterName, Trust};

/// What an engagement knows of the cluster that answers.
#[derive(Default)]
pub(super) struct Known {
    /// None until the cluster has been Ready.
    pub(super) identity: Option<KnownIdentity>,
    /// The UID that the cluster has claimed: it is engaged as the cluster with this UID, or waits for that.
    pub(super) claimed: Option<Arc<str>>,
}

impl Known {
    pub(super) fn uid(&self) -> Option<&Arc<str>> {
        self.identity.as_ref()?.uid.as_ref()
    }

    /// Whether another cluster than the known one answers by a new connection.
    pub(super) fn is_another(&self, cluster: &Cluster, new: &NewConnection) -> bool {
        let another = self
            .identity
            .as_ref()
            .filter(|known| !known.is_same(&new.identity));
        if let Some(known) = another {
            let (was, is) = (known.uid.as_deref(), new.identity.uid.as_deref());
            tracing::warn!(cluster = %cluster.name(), was, is, "another cluster answers under this name, or its UID may not be read any more");
        }
        another.is_some()
    }

    /// Claims the UID of a cluster that has answered. Returns the UID and the name that is engaged with it, if this one has to wait.
    pub(super) fn claim(
        &mut self,
        fleet: &FleetContext,
        cluster: &Cluster,
        spec: &Description,
        new: &NewConnection,
    ) -> Option<(Arc<str>, ClusterName)> {
        // One that waits is known by its UID, also if that may not be read any more.
        let known = self.claimed.clone().filter(|_| self.identity.is_none());
        let uid = new.identity.uid.clone().or(known)?;
        if self.claimed.as_ref() != Some(&uid) {
            self.give_up(fleet, cluster);
        }
        self.claimed = Some(uid.clone());
        let is_trusted = match &spec.access {
            Ok(Access::Endpoint(access)) => access.trust == Trust::Trusted,
            Ok(_) => true,
            Err(_) => false,
        };
        let identities = &fleet.resources.identities;
        match identities.claim(&uid, cluster.name(), is_trusted) {
            Claim::Engage => None,
            Claim::Wait(engaged) => Some((uid, engaged)),
            Claim::Displace(displaced) => {
                if let Some(displaced) = fleet.registry.get(&displaced) {
                    // Before the hub is Ready. The supervisor of the other one notices that it has to end.
                    displaced.cut_off();
                    displaced.health().failed();
                }
                None
            }
        }
    }

    /// Others don't wait behind a cluster that waits and can't be reached. It is still known as the one with this UID.
    pub(super) fn release(&self, fleet: &FleetContext, cluster: &Cluster) {
        if let Some(uid) = self.claimed.as_ref().filter(|_| self.identity.is_none()) {
            fleet.resources.identities.release(uid, cluster.name());
        }
    }

    /// Gives up the claim.
    pub(super) fn give_up(&mut self, fleet: &FleetContext, cluster: &Cluster) {
        if let Some(uid) = self.claimed.take() {
            fleet.resources.identities.release(&uid, cluster.name());
            cluster.change_info(|info| info.same_as = None);
        }
    }
}
