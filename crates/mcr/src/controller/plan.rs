//! What a controller is to do, without the types of its objects.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_core::{BoxError, Cluster, Fleet, FleetEvent, WatchRequest};
use tokio_util::sync::CancellationToken;

use super::{ClusterEnqueue, Enqueue};
use crate::{ClusterSelector, Predicate, RequestKey, mapper::MapChange, reconciler::Run};

pub(crate) type MapFleet = Arc<dyn Fn(&FleetEvent, &Fleet) -> Vec<RequestKey> + Send + Sync>;
pub(crate) type SourceFuture = BoxFuture<'static, Result<(), BoxError>>;
pub(crate) type RunSource = Arc<dyn Fn(Enqueue, CancellationToken) -> SourceFuture + Send + Sync>;
pub(crate) type RunClusterSource =
    Arc<dyn Fn(Cluster, ClusterEnqueue, CancellationToken) -> SourceFuture + Send + Sync>;
pub(crate) type Weigh = Arc<dyn Fn(&Cluster) -> u32 + Send + Sync>;

pub(crate) struct Plan {
    pub(crate) name: Arc<str>,
    pub(crate) clusters: ClusterSelector,
    /// The primary first, if there is one.
    pub(crate) watches: Vec<WatchPlan>,
    pub(crate) has_primary: bool,
    pub(crate) fleet_maps: Vec<MapFleet>,
    pub(crate) sources: Vec<RunSource>,
    pub(crate) cluster_sources: Vec<RunClusterSource>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) release_jitter: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) weigh: Option<Weigh>,
    pub(crate) runner: Arc<dyn Run>,
}

pub(crate) struct WatchPlan {
    pub(crate) request: WatchRequest,
    pub(crate) clusters: Option<ClusterSelector>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) optional: bool,
    /// None for the primary: its objects are what is reconciled.
    pub(crate) map: Option<MapChange>,
}

impl Plan {
    /// The number of the primary watch.
    pub(crate) const PRIMARY: usize = 0;
}
