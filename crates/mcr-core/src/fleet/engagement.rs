//! One engagement of one cluster: its data, its states, and the changes that its provider announces.

use std::{sync::Arc, time::Duration};

use mcr_client::internal::{Backoff, ConnectError};
use mcr_watch::internal::Phase;
use tokio::{sync::watch, time::Instant};

use super::{
    cluster::{Attachment, Cluster},
    connection::Connection,
    context::FleetContext,
    description::DesiredCluster,
    drain::End,
    identity::KnownIdentity,
    registry::CountedConnection,
    scoped::ScopeEndpoint,
    spec_change::Target,
    state::ClusterState,
};

/// One engagement of one cluster, or of one scope endpoint, which lives like a cluster.
pub(super) struct Engagement<'a> {
    _counted: CountedConnection<'a>,
    pub(super) fleet: &'a FleetContext,
    /// Set if this is the engagement of a scope endpoint.
    pub(super) scope_endpoint: Option<Arc<ScopeEndpoint>>,
    pub(super) changes: &'a mut watch::Receiver<Option<DesiredCluster>>,
    pub(super) desired: DesiredCluster,
    pub(super) cluster: Cluster,
    pub(super) identity: Option<KnownIdentity>,
    pub(super) connection: Option<Connection>,
    /// The target at which the cluster answered last, also while it is not connected.
    pub(super) last_target: Option<Target>,
    /// Numbers the targets at which the cluster answered; see [`Phase::Up`].
    pub(super) endpoint_number: u64,
    pub(super) backoff: Backoff,
    /// When to try again a spec that could not replace the one in use.
    pub(super) retry_spec_at: Option<Instant>,
    /// Whether the API server refused the credentials at the last attempt.
    pub(super) refused: bool,
    pub(super) last_probe: Instant,
    /// The UID that the cluster has claimed: it is engaged as the cluster with this UID, or waits for that.
    pub(super) claimed: Option<Arc<str>>,
    /// The end of the pause after a panic.
    pub(super) paused_until: Option<Instant>,
}

impl<'a> Engagement<'a> {
    /// Begins an engagement: the cluster is in the fleet from now on.
    pub(super) fn begin(
        fleet: &'a FleetContext,
        desired: DesiredCluster,
        changes: &'a mut watch::Receiver<Option<DesiredCluster>>,
        scope_endpoint: Option<Arc<ScopeEndpoint>>,
    ) -> Box<Self> {
        let name = desired.spec.name.clone();
        let epoch = fleet.registry.next_epoch();
        let attachment = scope_endpoint
            .as_ref()
            .map_or(Attachment::Own, |_| Attachment::Endpoint);
        let cluster = Cluster::new(&desired, epoch, &fleet.resources, attachment);
        match &scope_endpoint {
            None => {
                fleet.log_join(&cluster, &desired.provider);
                fleet.registry.insert(&cluster);
                fleet.publish(&name);
            }
            Some(endpoint) => {
                tracing::debug!(endpoint = %name, "connecting a scope endpoint");
                endpoint.begin_connection(&cluster);
            }
        }
        // In a box: a future reserves memory for its arguments, and once more for the variables that they move to.
        Box::new(Self {
            _counted: fleet.registry.count_connection(),
            fleet,
            scope_endpoint,
            changes,
            desired,
            cluster,
            identity: None,
            connection: None,
            last_target: None,
            endpoint_number: 0,
            backoff: Backoff::new(Duration::from_millis(500), fleet.settings().reconnect_cap),
            retry_spec_at: None,
            refused: false,
            last_probe: Instant::now(),
            claimed: None,
            paused_until: None,
        })
    }

    /// Gives clients that are taken from now on the default namespace of the newest spec.
    ///
    /// Not to be called while the cluster is connected by an older spec.
    pub(super) fn use_default_namespace(&self) {
        if let Some(namespace) = &self.desired.spec.default_namespace
            && self.cluster.set_default_namespace(namespace)
        {
            self.notify();
        }
    }

    /// Enters a state. Logs the change and notifies subscribers.
    pub(super) fn set_state(&self, state: ClusterState) {
        let before = self.cluster.state();
        if !self.cluster.set_state(state.clone()) {
            return;
        }
        let name = self.cluster.name();
        if before.same_kind(&state) {
            tracing::debug!(cluster = %name, %state, "the reason of the state has changed");
        } else if let ClusterState::Unreachable { reason } = &state {
            tracing::warn!(cluster = %name, display_name = self.cluster.property(crate::DISPLAY_NAME), from = before.as_str(), %reason, "cluster is unreachable");
        } else if self.fleet.settings().internal || self.scope_endpoint.is_some() {
            tracing::debug!(connection = %name, from = before.as_str(), %state, "connection state");
        } else {
            tracing::info!(cluster = %name, display_name = self.cluster.property(crate::DISPLAY_NAME), from = before.as_str(), %state, "cluster state");
        }
        self.notify();
    }

    /// Notifies subscribers of the fleet, or the clusters of the scope endpoint, of a change.
    pub(super) fn notify(&self) {
        match &self.scope_endpoint {
            None => self.fleet.publish(self.cluster.name()),
            Some(endpoint) => endpoint.update_clusters(),
        }
    }

    /// The prefix of all request paths.
    pub(super) fn prefix(&self) -> String {
        let endpoint = self.scope_endpoint.as_ref();
        let prefix = endpoint.map(|endpoint| endpoint.scope.watch_prefix());
        prefix.unwrap_or_default().to_owned()
    }

    /// Suspends the cluster, if its spec says so.
    pub(super) fn suspend(&mut self) {
        let Some(reason) = self.desired.spec.suspended() else {
            return;
        };
        self.cluster.set_phase(Phase::Down);
        self.cluster
            .block(Some(format!("the cluster is suspended: {reason}").into()));
        self.connection = None;
        self.set_state(ClusterState::Suspended { reason });
    }

    /// Makes the cluster Unreachable. Its watches pause, and its requests fail at once with the reason, also those that wait for
    /// an answer.
    pub(super) fn unreachable(&mut self, why: ConnectError) {
        self.refused = why.unauthorized;
        self.cluster.set_phase(Phase::Down);
        self.cluster.transport().lose(why.reason.clone());
        self.set_state(ClusterState::Unreachable { reason: why.reason });
    }

    /// Waits until the provider announces a change, and takes it.
    pub(super) async fn change(&mut self) -> Option<End> {
        if self.changes.changed().await.is_err() {
            return Some(End::Stopped);
        }
        self.take_change()
    }

    /// Takes the newest announcement of the provider. The caller decides what the change means for the connection.
    pub(super) fn take_change(&mut self) -> Option<End> {
        let desired = self.changes.borrow_and_update().clone();
        let Some(desired) = desired.filter(|desired| desired.claim == self.desired.claim) else {
            return Some(End::Left);
        };
        if self.identity.is_none() {
            // The new description may be of another cluster.
            self.release();
        }
        let identity_changed = matches!(
            (&self.desired.spec.identity, &desired.spec.identity),
            (Some(old), Some(new)) if old != new
        );
        let info_changed = self.desired.spec.labels != desired.spec.labels
            || self.desired.spec.properties != desired.spec.properties;
        self.desired = desired;
        let spec = self.desired.spec.clone();
        self.cluster.change_info(|info| info.spec.clone_from(&spec));
        if !self.cluster.state().is_ready() {
            self.use_default_namespace();
        }
        // A cluster that moves into a scope has no connection of its own any more.
        if identity_changed || (self.scope_endpoint.is_none() && self.desired.spec.scoped().is_some()) {
            return Some(End::Replaced);
        }
        if info_changed {
            self.notify();
        }
        None
    }

    /// Ends the engagement: the cluster accepts no new work, running work gets its grace period, then nothing of the
    /// cluster is left.
    pub(super) async fn drain(&self, end: End, on_end: impl FnOnce(End)) {
        let (fleet, cluster) = (self.fleet, &self.cluster);
        cluster.set_phase(Phase::Down);
        match &self.scope_endpoint {
            None => {
                fleet.begin_drain(cluster, end);
                on_end(end);
                fleet.wait_for_tasks(cluster).await;
                fleet.end_drain(cluster);
                // Not earlier: work of this name may have been running until now.
                if let Some(uid) = &self.claimed {
                    fleet.resources.identities.release(uid, cluster.name());
                }
            }
            Some(endpoint) => {
                tracing::debug!(endpoint = %cluster.name(), reason = ?end, "disconnecting a scope endpoint");
                if end == End::Replaced {
                    cluster.close_transport();
                }
                cluster.close();
                endpoint.end_connection();
                on_end(end);
                fleet.wait_for_tasks(cluster).await;
                cluster.close_transport();
                cluster.set_state(ClusterState::Gone);
            }
        }
    }
}
