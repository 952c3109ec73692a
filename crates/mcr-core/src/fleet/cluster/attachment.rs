//! How a cluster is connected.

use std::{sync::Arc, time::SystemTime};

use mcr_client::Transport;
use mcr_watch::internal::{Grant, SharedWatch};

use super::info::ClusterInfo;
use crate::scope::ScopedAccess;
use mcr_access::ClusterName;

/// How a cluster is connected.
pub(crate) enum Attachment {
    /// The cluster has its own connection.
    Own,
    /// The handle is that of a scope endpoint: it has its own connection, but it is no cluster of the fleet.
    Endpoint,
    /// The cluster uses the connection of its scope endpoint.
    Scoped(Arc<dyn ScopePlacement>),
}

/// The placement of a cluster in a scope: its scope endpoint and its place there.
///
/// A trait, because a scope endpoint knows its clusters: their handle can't name its type.
pub(crate) trait ScopePlacement: Send + Sync {
    /// The place.
    fn at(&self) -> ScopedAccess;

    /// Whether this is its scope endpoint now: the address of one that is alive.
    fn is_behind(&self, endpoint: *const ()) -> bool;

    /// Creates the transport of the cluster, which sends requests through the layout of the scope.
    fn transport(self: Arc<Self>, cluster: &ClusterName) -> Transport;

    /// The connection of the scope endpoint; none before the first one and between two servers.
    fn connection(&self) -> Option<ConnectionInfo>;

    /// Reports to the scope endpoint that work waits or runs.
    fn report_work(&self);

    /// Makes a watch read the objects of this place. Returns a grant if its kind is no longer withheld from the cluster.
    fn join(&self, watch: &Arc<SharedWatch>) -> Option<Grant>;
}

/// The state of a connection, for the snapshot of the fleet.
pub(crate) struct ConnectionInfo {
    pub(crate) info: Arc<ClusterInfo>,
    /// When anything was last received.
    pub(crate) last_received: Option<SystemTime>,
}
