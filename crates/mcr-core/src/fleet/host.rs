//! One endpoint of a scope, connected once for all clusters behind it.
//!
//! It lives the life of a cluster that nobody sees: dialled, probed, its credentials renewed, its watches run. The
//! clusters behind it follow its state.

use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use http::{Request, Response};
use kube::client::Body;
use mcr_client::{
    AnswerBody,
    internal::{AbsolutePath, prefixed},
};
use mcr_store::Indexer;
use mcr_watch::{
    WatchError,
    internal::{SharedWatch, drive},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    ClusterState, FleetShared,
    life::{End, Life},
    member,
    snapshot::{ScopeStatus, ScopeWatchStatus},
    supervisor::Wanted,
};
use crate::{
    Access, BoxError, Cluster, ClusterName, ClusterSpec, WatchRequest,
    scope::{Endpoints, Scope, ScopeRefusal, ScopeWatch, ScopedAccess},
};

/// The hosts of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<ByEndpoint>);

/// By scope and endpoint.
type ByEndpoint = HashMap<(u64, Arc<str>), Arc<Host>>;

/// See the module.
pub(crate) struct Host {
    name: ClusterName,
    scope: Scope,
    endpoint: Arc<str>,
    fleet: Weak<FleetShared>,
    state: Mutex<State>,
    /// Held while clusters are told of the state, so that the last one told is the last one there was.
    telling: Mutex<()>,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    /// The connection; none before the first one and between two servers.
    connection: Option<Cluster>,
    watches: HashMap<WatchRequest, Arc<ScopeWatch>>,
    /// By their epochs.
    clusters: HashMap<u64, Cluster>,
}

/// The host of an endpoint that a cluster is about to stand behind.
pub(super) struct Found<'a> {
    host: Arc<Host>,
    /// Held until the cluster stands there.
    _hosts: MutexGuard<'a, ByEndpoint>,
}

impl Found<'_> {
    pub(super) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The cluster stands there.
    pub(super) fn admit(self, cluster: &Cluster) -> Arc<Host> {
        self.host
            .state()
            .clusters
            .insert(cluster.epoch(), cluster.clone());
        self.host
    }
}

impl Hosts {
    fn hosts(&self) -> MutexGuard<'_, ByEndpoint> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host of an endpoint, which is connected if nobody stood there yet.
    ///
    /// No cluster can leave any host until one was admitted to this one: with the last cluster of an endpoint its connection
    /// ends, and a cluster that had just found the host would stay behind it for ever.
    pub(super) fn find(&self, fleet: &Arc<FleetShared>, at: &ScopedAccess) -> Found<'_> {
        let key = (at.scope.id(), at.endpoint.clone());
        let mut hosts = self.hosts();
        let host = hosts.entry(key).or_insert_with(|| {
            let host = Arc::new(Host::new(fleet, at));
            fleet.tasks.spawn(run(fleet.clone(), host.clone()));
            host
        });
        let host = host.clone();
        Found { host, _hosts: hosts }
    }

    /// A cluster leaves an endpoint, which is let go of if it was the last.
    pub(super) fn dismiss(&self, host: &Arc<Host>, cluster: &Cluster) {
        let mut hosts = self.hosts();
        let mut state = host.state();
        state.clusters.remove(&cluster.epoch());
        if state.clusters.is_empty() {
            host.stop.cancel();
            hosts.retain(|_, known| !Arc::ptr_eq(known, host));
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Host>> {
        self.hosts().values().cloned().collect()
    }
}

/// Keeps an endpoint connected until the last cluster has left it.
async fn run(fleet: Arc<FleetShared>, host: Arc<Host>) {
    let mut endpoints = host.scope.subscribe();
    let mut access = host.access(&endpoints.borrow_and_update());
    let (wanted, mut changes) = watch::channel(Some(host.wanted(access.as_deref())));
    let follow = async {
        while endpoints.changed().await.is_ok() {
            let now = host.access(&endpoints.borrow_and_update());
            // What is said of the other endpoints must not interrupt an attempt to connect this one.
            if now.as_ref().map(Arc::as_ptr) != access.as_ref().map(Arc::as_ptr) {
                wanted.send_replace(Some(host.wanted(now.as_deref())));
                access = now;
            }
        }
        std::future::pending::<()>().await;
    };
    let live = async {
        loop {
            let wanted = changes.borrow_and_update().clone();
            let Some(wanted) = wanted else { return };
            let life = Life::begin(&fleet, wanted, &mut changes, Some(host.clone()));
            if life.run().await == End::Stopped {
                return;
            }
        }
    };
    tokio::select! {
        () = live => {}
        () = follow => {}
    }
}

impl Host {
    fn new(fleet: &Arc<FleetShared>, at: &ScopedAccess) -> Self {
        Self {
            name: ClusterName::unchecked(format!("scope {}, endpoint {}", at.scope.name(), at.endpoint)),
            scope: at.scope.clone(),
            endpoint: at.endpoint.clone(),
            fleet: Arc::downgrade(fleet),
            state: Mutex::default(),
            telling: Mutex::default(),
            // Not the fleet's: what still runs for a cluster when the fleet stops may speak to it until its grace is
            // over, so the connection ends with the last cluster.
            stop: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) fn prefix(&self) -> &str {
        self.scope.watch_prefix()
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    fn access(&self, endpoints: &Endpoints) -> Option<Arc<Access>> {
        endpoints.get(&self.endpoint).cloned()
    }

    /// What the endpoint should be like now.
    fn wanted(&self, access: Option<&Access>) -> Wanted {
        let name = self.name.clone();
        let spec = match access {
            Some(access) => ClusterSpec::new(name, access.clone()),
            None => {
                let reason = format!(
                    "scope {} has no endpoint {:?} at the moment",
                    self.scope.name(),
                    self.endpoint
                );
                let nowhere = self.scope.place(self.endpoint.clone(), "");
                ClusterSpec::new(name, nowhere).suspended(reason)
            }
        };
        Wanted::of_endpoint(self.scope.name(), spec)
    }

    pub(crate) fn connection(&self) -> Option<Cluster> {
        self.state().connection.clone()
    }

    fn clusters(&self) -> Vec<Cluster> {
        self.state().clusters.values().cloned().collect()
    }

    /// How the clusters behind the endpoint are, as far as it depends on the endpoint.
    pub(super) fn cluster_state(&self) -> ClusterState {
        let state = self.connection().map(|connection| connection.state());
        match state {
            Some(ClusterState::Ready) => ClusterState::Ready,
            Some(ClusterState::Unreachable { reason } | ClusterState::Suspended { reason }) => {
                ClusterState::Unreachable { reason }
            }
            _ => ClusterState::Connecting,
        }
    }

    /// Tells a cluster how its endpoint is, if it stands behind this one.
    pub(super) fn tell(&self, cluster: &Cluster) {
        let Some(fleet) = self.fleet.upgrade() else { return };
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        member::follow(&fleet, cluster, self);
    }
}

/// What its connection says.
impl Host {
    pub(super) fn begun(&self, connection: &Cluster) {
        let watches: Vec<Arc<ScopeWatch>> = {
            let mut state = self.state();
            state.connection = Some(connection.clone());
            state.watches.values().cloned().collect()
        };
        for watch in watches {
            self.start(connection, watch);
        }
    }

    pub(super) fn state_changed(&self) {
        for cluster in self.clusters() {
            self.tell(&cluster);
        }
    }

    /// The connection is over. Nothing that was read through it is another server's.
    pub(super) fn ended(&self, end: End) {
        let watches = {
            let mut state = self.state();
            state.connection = None;
            std::mem::take(&mut state.watches)
        };
        for watch in watches.values() {
            watch.stop();
        }
        let Some(fleet) = self.fleet.upgrade() else { return };
        if end != End::Stopped {
            for cluster in self.clusters() {
                member::replace(&fleet, &cluster, self);
            }
        }
    }

    fn start(&self, connection: &Cluster, watch: Arc<ScopeWatch>) {
        if let Some(env) = connection.driver_env(watch.request()) {
            connection.tasks().spawn(drive(watch, env));
        }
    }
}

/// How the endpoint is asked for a kind. A layout that panics has none; whoever wants the kind is told so.
fn asked(scope: &Scope, wanted: &WatchRequest) -> Result<WatchRequest, WatchError> {
    wanted.check()?;
    let query = catch_unwind(AssertUnwindSafe(|| scope.layout().watch(wanted)))
        .unwrap_or_else(|_| Err(ScopeRefusal::new("the scope's layout panicked when asked for it")))
        .map_err(|refusal| WatchError::NotInScope {
            message: refusal.to_string(),
        })?;
    query.check()?;
    Ok(query)
}

/// What its clusters ask for.
impl Host {
    /// Lets a watch of a cluster read the objects of its place. Only to be called within
    /// [`SharedWatch::join_with`].
    pub(crate) fn join(self: &Arc<Self>, watch: &Arc<SharedWatch>, place: &Arc<str>) {
        let request = watch.request();
        let mut state = self.state();
        let mut start = None;
        let scope_watch = match state.watches.get(request) {
            Some(known) => known.clone(),
            None => match asked(&self.scope, request) {
                Ok(query) => {
                    let new = Arc::new(self.new_watch(request, query));
                    state.watches.insert(request.clone(), new.clone());
                    start = state.connection.clone();
                    new
                }
                Err(error) => {
                    drop(state);
                    return watch.refuse(error);
                }
            },
        };
        // Before the lock is let go of, or someone who leaves could take the watch along as one that nobody reads.
        let contents = scope_watch.admit(watch, place);
        drop(state);
        if let Some(contents) = contents {
            watch.join(scope_watch.clone(), contents);
        }
        // After that, so that the first list counts for a cluster that has moved here.
        if let Some(connection) = start {
            self.start(&connection, scope_watch);
        }
    }

    fn new_watch(self: &Arc<Self>, request: &WatchRequest, query: WatchRequest) -> ScopeWatch {
        let indexers = self
            .fleet
            .upgrade()
            .map(|fleet| fleet.indexers_of(request))
            .unwrap_or_default();
        let host = Arc::downgrade(self);
        let unread = move |request: &WatchRequest| {
            if let Some(host) = host.upgrade() {
                host.forget_unread(request);
            }
        };
        ScopeWatch::new(
            self.scope.layout().clone(),
            request.clone(),
            query,
            indexers,
            Box::new(unread),
        )
    }

    fn forget_unread(&self, request: &WatchRequest) {
        let mut state = self.state();
        if state.watches.get(request).is_some_and(|watch| watch.is_unread())
            && let Some(watch) = state.watches.remove(request)
        {
            watch.stop();
        }
    }

    pub(super) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &Indexer) {
        let watches: Vec<Arc<ScopeWatch>> = self.state().watches.values().cloned().collect();
        for watch in watches.iter().filter(|watch| watch.request().same_kind(kind)) {
            watch.add_index(name, indexer);
        }
    }

    pub(super) fn status(&self) -> ScopeStatus {
        let state = self.state();
        let watches = state.watches.values().map(|watch| {
            let (places, clusters) = watch.counts();
            ScopeWatchStatus::of(watch.status(), watch.request(), places, clusters)
        });
        let mut watches: Vec<_> = watches.collect();
        watches.sort_by(|a, b| a.watch.cmp(&b.watch));
        ScopeStatus::of(
            self.scope.name(),
            &self.endpoint,
            state.connection.as_ref(),
            state.clusters.len(),
            watches,
        )
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("scope", &self.scope)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The connection of a scope's endpoint, for the requests of its clusters; handed to
/// [`ScopeLayout::send`](crate::ScopeLayout::send).
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Host>);

impl Upstream {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self(host)
    }

    /// Sends a request with the endpoint's credentials. Its URI is a path, below the endpoint's address, and a
    /// query. Dropping the future gives the request up.
    ///
    /// # Errors
    /// If no answer comes: the endpoint is not connected, the connection broke, it took too long.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let Some(connection) = self.0.connection() else {
            return Err(format!(
                "endpoint {:?} of scope {} is not connected yet",
                self.0.endpoint,
                self.0.scope.name()
            )
            .into());
        };
        request.extensions_mut().insert(AbsolutePath);
        let response = connection.transport().send(request).await?;
        Ok(response.map(AnswerBody::new))
    }

    /// Sends a request below another path than the one it names.
    ///
    /// # Errors
    /// As of [`send`](Self::send), and if the path does not make a valid URI.
    pub async fn send_below(
        &self,
        prefix: &str,
        mut request: Request<Body>,
    ) -> Result<Response<AnswerBody>, BoxError> {
        *request.uri_mut() = prefixed(prefix, request.uri())?;
        self.send(request).await
    }
}
