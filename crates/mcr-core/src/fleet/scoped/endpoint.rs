//! A scope endpoint: one connection for all clusters behind it.
//!
//! A scope endpoint has an engagement like a cluster, but is not shown as a cluster. The
//! supervisor dials it, probes it, renews its credentials and runs its watches. The clusters behind it follow its state.

use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use mcr_client::Transport;
use mcr_store::Indexer;
use mcr_watch::{
    WatchError, WatchRequest,
    internal::{Feed, Places, ScopeWatch, SharedWatch},
};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Scope, ScopedAccess},
    fleet::{
        cluster::Cluster,
        epoch::Epoch,
        resources::Resources,
        snapshot::{ScopeStatus, ScopeWatchStatus},
        state::{ClusterState, Published},
    },
    layout::ScopeRefusal,
    scope::Placement,
    upstream::EndpointConnection,
};
use mcr_access::{BoxError, ClusterName};
use mcr_store::ObjectMetadata;

/// A scope endpoint that has clusters.
pub(crate) struct ScopeEndpoint {
    /// The name for logs.
    pub(crate) name: ClusterName,
    pub(crate) scope: Scope,
    /// The name of the endpoint in its scope.
    pub(crate) endpoint: Arc<str>,
    pub(super) resources: Arc<Resources>,
    state: Mutex<State>,
    /// Locked while a cluster takes over the state of the endpoint, so that the cluster ends with the newest one.
    update: Mutex<()>,
    /// Cancelled when the last cluster has left.
    pub(crate) stop: CancellationToken,
}

#[derive(Default)]
struct State {
    /// None before the first connection and between two servers.
    connection: Option<Cluster>,
    watches: HashMap<WatchRequest, Arc<ScopeWatch>>,
    clusters: HashMap<Epoch, Cluster>,
}

impl ScopeEndpoint {
    pub(super) fn new(resources: &Arc<Resources>, at: &ScopedAccess) -> Self {
        Self {
            name: ClusterName::unchecked(format!("scope {}, endpoint {}", at.scope.name(), at.endpoint)),
            scope: at.scope.clone(),
            endpoint: at.endpoint.clone(),
            resources: resources.clone(),
            state: Mutex::default(),
            update: Mutex::default(),
            // No child of the fleet's token: after the fleet stops, running work of the clusters may send requests during its
            // grace period. The connection ends with the last cluster.
            stop: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Tells it from other endpoints, also from those of the same scope and name.
    pub(super) fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    pub(crate) fn connection(&self) -> Option<Cluster> {
        self.state().connection.clone()
    }

    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.state().clusters.values().cloned().collect()
    }

    pub(super) fn add_cluster(&self, cluster: &Cluster) {
        self.state().clusters.insert(cluster.epoch(), cluster.clone());
    }

    /// Removes a cluster. Stops the endpoint and returns true if it was the last one.
    pub(super) fn remove_cluster(&self, cluster: &Cluster) -> bool {
        let mut state = self.state();
        state.clusters.remove(&cluster.epoch());
        let last = state.clusters.is_empty();
        if last {
            self.stop.cancel();
        }
        last
    }

    /// The state of the clusters behind the endpoint, as far as it depends on the endpoint.
    fn cluster_state(&self) -> ClusterState {
        let state = self.connection().map(|connection| connection.state());
        match state {
            Some(ClusterState::Ready) => ClusterState::Ready,
            Some(ClusterState::Unreachable { reason } | ClusterState::Suspended { reason }) => {
                ClusterState::Unreachable { reason }
            }
            _ => ClusterState::Connecting,
        }
    }

    /// Makes a cluster take over the state of the endpoint, unless the cluster has moved to another endpoint, is
    /// suspended itself, or drains.
    pub(super) fn update_cluster(&self, cluster: &Cluster) {
        let _update = self.update.lock();
        // Checked while the state is set, because all of this can change at any time.
        let follows = |now: &ClusterState| {
            !matches!(now, ClusterState::Suspended { .. })
                && cluster
                    .placement()
                    .is_some_and(|placement| placement.is_behind(self.address()))
        };
        let published = Published::behind(self.cluster_state());
        if cluster.publish_if(published, follows).is_some() {
            self.resources.observers.publish(cluster.name());
        }
    }
}

/// The events of its connection.
impl ScopeEndpoint {
    /// A new connection begins. All watches start on it.
    pub(crate) fn begin_connection(&self, connection: &Cluster) {
        let mut state = self.state();
        state.connection = Some(connection.clone());
        for watch in state.watches.values() {
            self.start(connection, watch.clone());
        }
    }

    fn start(&self, connection: &Cluster, watch: Arc<ScopeWatch>) {
        let env = connection.driver_env(watch.request());
        let delay = self.resources.settings.uncertain_deletion_delay;
        connection.tasks().spawn(watch.run(env, delay));
    }

    /// Makes all clusters take over the state of the endpoint.
    pub(crate) fn update_clusters(&self) {
        for cluster in self.clusters() {
            self.update_cluster(&cluster);
        }
    }

    /// The connection ends. All watches end, because their objects are not those of the next server.
    pub(crate) fn end_connection(&self) {
        let watches = {
            let mut state = self.state();
            state.connection = None;
            std::mem::take(&mut state.watches)
        };
        for watch in watches.values() {
            watch.stop();
        }
    }
}

/// The places behind an endpoint of a scope, as its layout distinguishes them.
struct PlacesBehind(Scope, Arc<str>);

impl Places for PlacesBehind {
    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        self.0.layout().place(object)
    }
    fn localizes(&self, wanted: &WatchRequest) -> bool {
        self.0.layout().localizes(wanted)
    }
    fn localize(&self, place: &str, object: &mut serde_json::Value) {
        self.0.layout().localize(place, object);
    }
    // No cluster can move if this is the only endpoint. The last cluster that moves away may take its endpoint along, before its
    // deletions arrive.
    fn deletions_are_certain(&self) -> bool {
        self.0.endpoints() == [self.1.clone()] || self.0.layout().deletions_are_certain()
    }
}

/// The request for a kind that the endpoint receives for all its clusters.
///
/// # Errors
/// If the layout refuses the kind or panics, or if a request is invalid.
fn endpoint_request(scope: &Scope, wanted: &WatchRequest) -> Result<WatchRequest, WatchError> {
    wanted.check()?;
    let query = catch_unwind(AssertUnwindSafe(|| scope.layout().watch(wanted)))
        .unwrap_or_else(|_| Err(ScopeRefusal::new("the scope's layout panicked when asked for it")))
        .map_err(|refusal| WatchError::NotInScope {
            message: refusal.to_string(),
        })?;
    query.check()?;
    Ok(query)
}

/// The watches of its clusters.
impl ScopeEndpoint {
    /// Makes a watch of a cluster read the objects of a place. Only to be called within [`SharedWatch::join_with`].
    pub(super) fn join(self: &Arc<Self>, watch: &Arc<SharedWatch>, place: &Arc<str>) {
        let request = watch.request();
        let mut state = self.state();
        let mut start_on = None;
        let scope_watch = match state.watches.get(request) {
            Some(known) => known.clone(),
            None => match endpoint_request(&self.scope, request) {
                Ok(query) => {
                    let new = Arc::new(self.new_watch(request, query));
                    state.watches.insert(request.clone(), new.clone());
                    start_on = state.connection.clone();
                    new
                }
                Err(error) => {
                    drop(state);
                    return watch.refuse(error);
                }
            },
        };
        // With the lock: otherwise a watch that leaves could remove this one, which would have no reader.
        let contents = scope_watch.admit(watch, place);
        drop(state);
        if let Some(contents) = contents {
            watch.join(scope_watch.clone(), contents);
        }
        // After `joined`, so that a cluster that has moved here waits for the first list.
        if let Some(connection) = start_on {
            self.start(&connection, scope_watch);
        }
    }

    fn new_watch(self: &Arc<Self>, request: &WatchRequest, query: WatchRequest) -> ScopeWatch {
        let endpoint = Arc::downgrade(self);
        let on_last_reader_left = move |request: &WatchRequest| {
            if let Some(endpoint) = endpoint.upgrade() {
                endpoint.remove_unread(request);
            }
        };
        ScopeWatch::new(
            Arc::new(PlacesBehind(self.scope.clone(), self.endpoint.clone())),
            request.clone(),
            query,
            self.resources.kinds.indexers(request),
            Box::new(on_last_reader_left),
        )
    }

    /// Ends a watch that no cluster reads.
    fn remove_unread(&self, request: &WatchRequest) {
        let mut state = self.state();
        if state
            .watches
            .get(request)
            .is_some_and(|watch| !watch.has_readers())
            && let Some(watch) = state.watches.remove(request)
        {
            watch.stop();
        }
    }

    /// Adds an index to the running watches of a kind.
    pub(crate) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &Indexer) {
        let watches: Vec<Arc<ScopeWatch>> = self.state().watches.values().cloned().collect();
        for watch in watches.iter().filter(|watch| watch.request().same_kind(kind)) {
            watch.add_index(name, indexer);
        }
    }

    pub(crate) fn status(&self) -> ScopeStatus {
        let state = self.state();
        let watches = state.watches.values().map(|watch| {
            let (places, clusters) = watch.counts();
            let status = watch.status();
            ScopeWatchStatus {
                watch: watch.request().to_string(),
                synced: status.synced,
                places,
                clusters,
                skipped: status.skipped,
                lists: status.lists,
                last_event: status.last_event,
                problem: status.problem.map(|problem| problem.error.to_string()),
            }
        });
        let mut watches: Vec<_> = watches.collect();
        watches.sort_by(|a, b| a.watch.cmp(&b.watch));
        let connection = state.connection.as_ref();
        let info = connection.map(Cluster::info);
        let info = info.as_deref();
        let shown = connection.map_or(ClusterState::Connecting, Cluster::state);
        ScopeStatus {
            scope: self.scope.name().into(),
            endpoint: self.endpoint.clone(),
            state: shown.as_str(),
            since: connection.map(Cluster::state_since),
            reason: shown.reason().map(Arc::from),
            warnings: info.and_then(|info| info.warning.clone()).into_iter().collect(),
            clusters: state.clusters.len(),
            last_received: connection.and_then(Cluster::last_received),
            last_probe: info.and_then(|info| info.last_probe),
            credential_expires: info.and_then(|info| info.credential_expires),
            watches,
        }
    }
}

impl EndpointConnection for ScopeEndpoint {
    fn transport(&self) -> Result<Transport, BoxError> {
        let Some(connection) = self.connection() else {
            return Err(format!(
                "endpoint {:?} of scope {} is not connected yet",
                self.endpoint,
                self.scope.name()
            )
            .into());
        };
        Ok(connection.transport().clone())
    }
}

impl fmt::Debug for ScopeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeEndpoint")
            .field("scope", &self.scope)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        access::Access,
        scope::{ScopeLayout, Upstream},
    };
    use mcr_access::Trust;
    use mcr_client::AnswerBody;

    pub(in crate::fleet::scoped) struct Nowhere;

    impl ScopeLayout for Nowhere {
        fn name(&self) -> &str {
            "nowhere"
        }
        fn place<'o>(&self, _: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
            None
        }
        fn send(
            &self,
            _: Arc<str>,
            _: http::Request<kube::client::Body>,
            _: Upstream,
        ) -> futures::future::BoxFuture<'static, Result<http::Response<AnswerBody>, BoxError>> {
            Box::pin(async { Err("not sent".into()) })
        }
    }

    #[test]
    fn a_deletion_is_certain_only_at_the_only_endpoint() {
        for (endpoints, certain) in [
            (&["one"][..], true),
            (&["one", "other"], false),
            (&["other"], false),
            (&[], false),
        ] {
            let scope = Scope::new(Nowhere);
            for endpoint in endpoints {
                scope.set_endpoint(*endpoint, Access::kubeconfig("", Trust::Trusted));
            }
            let places = PlacesBehind(scope, "one".into());
            assert_eq!(places.deletions_are_certain(), certain, "{endpoints:?}");
        }
    }
}
