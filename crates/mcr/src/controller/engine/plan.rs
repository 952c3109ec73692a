//! The settings of a controller, without the types of its objects.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_core::{BoxError, Cluster, Fleet, FleetEvent, WatchRequest};

use crate::{
    mapper::MapChange, predicate::Predicate, reconciler::RunReconcile, request::RequestKey,
    selector::ClusterSelector,
};

pub(crate) type MapFleet =
    Arc<dyn Fn(&FleetEvent, &Fleet) -> Result<Vec<RequestKey>, BoxError> + Send + Sync>;
pub(crate) type CleanUp =
    Arc<dyn Fn(Cluster, Fleet) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
pub(crate) type Weigh = Arc<dyn Fn(&Cluster) -> u32 + Send + Sync>;

/// The settings that do not depend on the kinds.
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) clusters: ClusterSelector,
    pub(crate) leader_only: bool,
    pub(crate) fleet_maps: Vec<MapFleet>,
    pub(crate) on_deselected: Option<CleanUp>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) release_jitter: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) weigh: Option<Weigh>,
}

pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// The primary watch first, if there is one.
    pub(crate) watches: Vec<WatchPlan>,
    pub(crate) has_primary: bool,
    pub(crate) reconciler: Arc<dyn RunReconcile>,
}

pub(crate) struct WatchPlan {
    pub(crate) request: WatchRequest,
    /// `None`: the clusters of the controller.
    pub(crate) clusters: Option<ClusterSelector>,
    pub(crate) predicates: Vec<Predicate>,
    pub(crate) optional: bool,
    /// The name of the cluster, if all requests of the controller wait until this watch has listed there.
    pub(crate) gates_all: Option<Arc<str>>,
    /// `None` for the primary watch, whose objects are reconciled themselves.
    pub(crate) map: Option<MapChange>,
}

impl Plan {
    /// The number of the primary watch.
    pub(crate) const PRIMARY: usize = 0;

    /// The primary kind: `<plural>` or `<plural>.<group>`.
    pub(crate) fn primary_kind(&self) -> Option<String> {
        let primary = self.watches.get(Self::PRIMARY).filter(|_| self.has_primary)?;
        Some(primary.request.resource_name())
    }
}
