//! The handle of one cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::SystemTime,
};

use arc_swap::ArcSwap;
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::events::{Recorder, Reporter},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Capabilities, ClusterName,
    fleet::{ClusterState, FleetShared, Seat},
    store::{Store, StoreError},
    transport::Transport,
    watch::{ChangeSink, DriverEnv, Health, Phase, SharedWatch, WatchRequest, drive},
};

/// One cluster of the fleet, from its engagement to its end.
///
/// A handle is cheap to clone and keeps working through rotations of credentials and changes of address. When
/// the cluster leaves, or another one takes its name, [`token`](Self::token) is cancelled, its stores read as
/// [`StoreError::Gone`] and its client answers with an error at once; a handle never turns into a handle of
/// the cluster that came after.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    name: ClusterName,
    provider: Arc<str>,
    epoch: u64,
    facts: ArcSwap<Facts>,
    state: watch::Sender<StateSince>,
    transport: Transport,
    phase: watch::Sender<Phase>,
    health: Health,
    token: CancellationToken,
    /// Everything that must end before the cluster counts as gone: its watches and running reconciles.
    tasks: TaskTracker,
    watches: Mutex<Watches>,
    default_namespace: OnceLock<Arc<str>>,
    recorder: OnceLock<Recorder>,
    standing: Standing,
    fleet: Weak<FleetShared>,
}

/// How a cluster is connected.
pub(crate) enum Standing {
    /// By itself.
    Own,
    /// By itself, as the endpoint of a scope: no cluster of the fleet, but the connection of those behind it.
    Hidden,
    /// Through the endpoint of a scope.
    Seated(Arc<Seat>),
}

/// What can change about a cluster without it becoming another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) credential_expires: Option<SystemTime>,
    pub(crate) last_probe: Option<SystemTime>,
    /// What is wrong though the cluster goes on as it was.
    pub(crate) warning: Option<Arc<str>>,
}

/// A state and when it was entered.
#[derive(Debug, Clone)]
pub(crate) struct StateSince {
    pub(crate) state: ClusterState,
    pub(crate) since: SystemTime,
}

#[derive(Default)]
struct Watches {
    by_request: HashMap<WatchRequest, Entry>,
    closed: bool,
}

struct Entry {
    watch: Arc<SharedWatch>,
    handles: usize,
}

impl Cluster {
    pub(crate) fn new(
        name: ClusterName,
        provider: Arc<str>,
        epoch: u64,
        facts: Facts,
        transport: Transport,
        fleet: &Arc<FleetShared>,
        standing: Standing,
    ) -> Self {
        let first = StateSince {
            state: ClusterState::Discovered,
            since: SystemTime::now(),
        };
        if !matches!(standing, Standing::Hidden) {
            fleet.counts().entered(&first.state);
        }
        Self(Arc::new(Inner {
            name,
            provider,
            epoch,
            facts: ArcSwap::from_pointee(facts),
            state: watch::Sender::new(first),
            transport,
            phase: watch::Sender::new(Phase::Down),
            health: Health::new(),
            token: fleet.token().child_token(),
            tasks: TaskTracker::new(),
            watches: Mutex::default(),
            default_namespace: OnceLock::new(),
            recorder: OnceLock::new(),
            standing,
            fleet: Arc::downgrade(fleet),
        }))
    }

    /// The name.
    pub fn name(&self) -> &ClusterName {
        &self.0.name
    }

    /// The name of the provider that announced it.
    pub fn provider(&self) -> &str {
        &self.0.provider
    }

    /// Numbers the engagements of the fleet: a cluster that comes back, or is replaced, has a higher one.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// Its labels as last announced.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.0.facts.load().labels.clone()
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<String> {
        self.0.facts.load().labels.get(key).cloned()
    }

    /// Its properties as last announced.
    pub fn properties(&self) -> BTreeMap<String, String> {
        self.0.facts.load().properties.clone()
    }

    /// What makes it this cluster, as far as is known: what its provider declared, or else the UID of its
    /// `kube-system` namespace.
    pub fn identity(&self) -> Option<Arc<str>> {
        self.0.facts.load().identity.clone()
    }

    /// Its state now.
    pub fn state(&self) -> ClusterState {
        self.0.state.borrow().state.clone()
    }

    /// When its state was entered.
    pub fn state_since(&self) -> SystemTime {
        self.0.state.borrow().since
    }

    /// Waits for a state; cancel safe. Returns the state it was in last if the cluster ends before.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&ClusterState) -> bool) -> ClusterState {
        let mut states = self.0.state.subscribe();
        let found = states
            .wait_for(|s| wanted(&s.state) || s.state == ClusterState::Gone)
            .await;
        match found {
            Ok(state) => state.state.clone(),
            Err(_) => ClusterState::Gone,
        }
    }

    /// Cancelled when the cluster leaves the fleet. Work for the cluster should end then.
    pub fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// A client of this cluster.
    ///
    /// Built on first use, shared, and good for the cluster's whole life: credentials and addresses change
    /// below it. While the cluster is not connected or suspended its requests fail at once with the reason,
    /// and no request waits longer than its deadline.
    ///
    /// # Panics
    /// If called for the first time outside of a tokio runtime.
    pub fn client(&self) -> Client {
        self.0.transport.client(
            self.0
                .default_namespace
                .get()
                .map_or("default", |namespace| namespace),
        )
    }

    /// All objects of a kind, in every namespace.
    pub fn api<K: Resource<DynamicType: Default>>(&self) -> Api<K> {
        Api::all(self.client())
    }

    /// The objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// The recorder of Kubernetes events of this cluster; one per cluster, so that equal events of different
    /// clusters are never counted as one.
    pub fn recorder(&self) -> Recorder {
        let reporter = || Reporter {
            controller: self.reporter_name(),
            instance: None,
        };
        self.0
            .recorder
            .get_or_init(|| Recorder::new(self.client(), reporter()))
            .clone()
    }

    fn reporter_name(&self) -> String {
        self.0.fleet.upgrade().map_or_else(
            || "mcr".to_owned(),
            |fleet| fleet.settings().event_reporter.clone(),
        )
    }

    /// The store of a kind that is watched. Never starts a watch.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if nobody watches the kind here, [`StoreError::Ambiguous`] if several
    /// watches with different selectors exist and none is of everything, [`StoreError::Gone`] if the cluster
    /// has left.
    pub fn store<K>(&self) -> Result<Store<K>, StoreError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.find_store(&WatchRequest::of::<K>())
    }

    /// The store of a kind known at run time; see [`store`](Self::store).
    ///
    /// # Errors
    /// As of [`store`](Self::store).
    pub fn store_with<K>(&self, dynamic: &K::DynamicType) -> Result<Store<K>, StoreError>
    where
        K: Resource + DeserializeOwned,
    {
        self.find_store(&WatchRequest::with::<K>(dynamic))
    }

    /// The store of exactly this watch.
    ///
    /// # Errors
    /// [`StoreError::NotWatched`] if there is no such watch, [`StoreError::Gone`] if the cluster has left.
    pub fn store_of<K: DeserializeOwned>(&self, request: &WatchRequest) -> Result<Store<K>, StoreError> {
        let watches = self.watches()?;
        let entry = watches
            .by_request
            .get(request)
            .ok_or_else(|| self.not_watched(request))?;
        Ok(Store::new(self.0.name.clone(), entry.watch.clone()))
    }

    fn find_store<K>(&self, wanted: &WatchRequest) -> Result<Store<K>, StoreError> {
        let watches = self.watches()?;
        if let Some(entry) = watches.by_request.get(wanted) {
            return Ok(Store::new(self.0.name.clone(), entry.watch.clone()));
        }
        let mut of_kind = watches
            .by_request
            .values()
            .filter(|entry| entry.watch.request().same_kind(wanted));
        match (of_kind.next(), of_kind.count()) {
            (None, _) => Err(self.not_watched(wanted)),
            (Some(only), 0) => Ok(Store::new(self.0.name.clone(), only.watch.clone())),
            (Some(_), more) => Err(StoreError::Ambiguous {
                cluster: self.0.name.clone(),
                kind: wanted.kind().to_owned(),
                count: more + 1,
            }),
        }
    }

    fn not_watched(&self, wanted: &WatchRequest) -> StoreError {
        StoreError::NotWatched {
            cluster: self.0.name.clone(),
            kind: wanted.to_string(),
        }
    }

    fn watches(&self) -> Result<MutexGuard<'_, Watches>, StoreError> {
        let watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if watches.closed {
            Err(StoreError::Gone {
                cluster: self.0.name.clone(),
            })
        } else {
            Ok(watches)
        }
    }

    /// Watches a kind for as long as the handle lives, sharing the watch with everyone who asks for the same.
    ///
    /// Returns at once; the list begins when the cluster is connected. A `sink` is first told every object
    /// that is already there, then every change.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the cluster has left.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn watch(
        &self,
        request: WatchRequest,
        sink: Option<Arc<dyn ChangeSink>>,
    ) -> Result<WatchHandle, StoreError> {
        let (watch, new) = {
            let mut watches = self.watches()?;
            let mut new = false;
            let entry = watches.by_request.entry(request.clone()).or_insert_with(|| {
                new = true;
                let watch = Arc::new(SharedWatch::new(request, self.0.token.child_token()));
                Entry { watch, handles: 0 }
            });
            entry.handles += 1;
            (entry.watch.clone(), new)
        };
        if new {
            self.start(&watch);
        }
        // Outside of the lock: telling a sink what is there takes as long as there is much.
        let sink = sink.map(|sink| watch.subscribe(sink));
        Ok(WatchHandle {
            cluster: Arc::downgrade(&self.0),
            watch,
            sink,
        })
    }

    fn start(&self, watch: &Arc<SharedWatch>) {
        if let Standing::Seated(seat) = &self.0.standing {
            return seat.join(watch);
        }
        if let Some(env) = self.driver_env(watch.request()) {
            if let Some(fleet) = self.0.fleet.upgrade() {
                for (name, indexer) in fleet.indexers_of(watch.request()) {
                    watch.contents().store().add_index(name, indexer);
                }
            }
            self.0.tasks.spawn(drive(watch.clone(), env));
        }
    }

    /// What a watch of this cluster runs with; none if there is no fleet any more.
    pub(crate) fn driver_env(&self, request: &WatchRequest) -> Option<DriverEnv> {
        let fleet = self.0.fleet.upgrade()?;
        Some(DriverEnv {
            cluster: self.0.name.clone(),
            transport: self.0.transport.clone(),
            phase: self.0.phase.subscribe(),
            health: self.0.health.clone(),
            list_slots: fleet.list_slots(),
            settings: fleet.settings().watch.clone(),
            counts: fleet.counts().kind(request),
        })
    }

    /// Lets every watch read from where the cluster now is in its scope.
    pub(crate) fn rejoin(&self, seat: &Seat) {
        let watches: Vec<Arc<SharedWatch>> = {
            let Ok(watches) = self.watches() else { return };
            watches
                .by_request
                .values()
                .map(|entry| entry.watch.clone())
                .collect()
        };
        watches.iter().for_each(|watch| seat.join(watch));
    }

    /// Runs a future as part of the cluster: the cluster does not count as gone before it has ended.
    ///
    /// The future should end soon after [`token`](Self::token) is cancelled.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.tasks.spawn(future)
    }

    /// How the cluster's watches are doing.
    pub fn kinds(&self) -> Vec<KindStatus> {
        let Ok(watches) = self.watches() else {
            return Vec::new();
        };
        let mut kinds: Vec<KindStatus> = watches
            .by_request
            .values()
            .map(|entry| {
                let status = entry.watch.status();
                KindStatus {
                    watch: entry.watch.request().to_string(),
                    kind: entry.watch.request().resource_name(),
                    blocked: status
                        .problem
                        .as_ref()
                        .is_some_and(|problem| problem.error.is_blocked()),
                    synced: status.synced,
                    objects: entry.watch.contents().store().len(),
                    bytes: entry.watch.contents().store().bytes(),
                    skipped: status.skipped,
                    lists: status.lists,
                    last_event: status.last_event,
                    problem: status.problem.map(|problem| problem.error.to_string()),
                }
            })
            .collect();
        kinds.sort_by(|a, b| a.watch.cmp(&b.watch));
        kinds
    }

    /// What its API can do that not every API can.
    pub fn capabilities(&self) -> Capabilities {
        match &self.0.standing {
            Standing::Seated(seat) => seat.host().scope().layout().capabilities(),
            Standing::Own | Standing::Hidden => Capabilities::default(),
        }
    }

    /// The name of the scope it is part of, if it is part of one.
    pub fn scope(&self) -> Option<Arc<str>> {
        match &self.0.standing {
            Standing::Seated(seat) => Some(seat.host().scope().name().into()),
            Standing::Own | Standing::Hidden => None,
        }
    }

    pub(crate) fn is_seated(&self) -> bool {
        self.seat().is_some()
    }

    /// Where it stands, if it is part of a scope.
    pub(crate) fn seat(&self) -> Option<&Arc<Seat>> {
        match &self.0.standing {
            Standing::Seated(seat) => Some(seat),
            Standing::Own | Standing::Hidden => None,
        }
    }

    /// The cluster whose connection it is reached by: itself, but for a cluster in a scope.
    pub(crate) fn connection(&self) -> Self {
        match &self.0.standing {
            Standing::Seated(seat) => seat.host().connection().unwrap_or_else(|| self.clone()),
            Standing::Own | Standing::Hidden => self.clone(),
        }
    }

    /// Whether this and the other are handles of the same engagement of the same cluster.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn facts(&self) -> Arc<Facts> {
        self.0.facts.load_full()
    }

    pub(crate) fn change_facts(&self, change: impl Fn(&mut Facts)) {
        self.0.facts.rcu(|facts| {
            let mut facts = Facts::clone(facts);
            change(&mut facts);
            facts
        });
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    pub(crate) fn health(&self) -> &Health {
        &self.0.health
    }

    pub(crate) fn set_default_namespace(&self, namespace: Arc<str>) {
        let _ = self.0.default_namespace.set(namespace);
    }

    /// Enters a state; says whether it is another than before.
    pub(crate) fn set_state(&self, state: ClusterState) -> bool {
        self.set_state_if(state, |_| true)
    }

    /// Enters a state unless the one it is in forbids it; says whether it is another than before.
    pub(crate) fn set_state_if(&self, state: ClusterState, may: impl FnOnce(&ClusterState) -> bool) -> bool {
        self.0.state.send_if_modified(|current| {
            if !may(&current.state) {
                return false;
            }
            let changed = current.state != state;
            // A new reason for being unreachable does not make it unreachable since now.
            if !current.state.same_kind(&state) {
                current.since = SystemTime::now();
                if let Some(fleet) = self.0.fleet.upgrade()
                    && !matches!(self.0.standing, Standing::Hidden)
                {
                    fleet.counts().entered(&state);
                }
            }
            current.state = state;
            changed
        })
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.0
            .phase
            .send_if_modified(|current| std::mem::replace(current, phase) != phase);
    }

    /// Adds an index to the watches of a kind that already run.
    pub(crate) fn add_index(&self, kind: &WatchRequest, name: &Arc<str>, indexer: &crate::store::Indexer) {
        // Those of a scope are indexed where they are held.
        if self.is_seated() {
            return;
        }
        let Ok(watches) = self.watches() else { return };
        for entry in watches
            .by_request
            .values()
            .filter(|entry| entry.watch.request().same_kind(kind))
        {
            entry
                .watch
                .contents()
                .store()
                .add_index(name.clone(), indexer.clone());
        }
    }

    /// Ends everything: no store is readable and no request gets through after this.
    pub(crate) fn close(&self) {
        self.0.token.cancel();
        let ended: Vec<Entry> = {
            let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.closed = true;
            watches.by_request.drain().map(|(_, entry)| entry).collect()
        };
        // Without the lock: it waits for sinks, which may look at their cluster.
        for entry in ended {
            entry.watch.mark_gone();
        }
        self.0.tasks.close();
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.0.name)
            .field("provider", &self.0.provider)
            .field("epoch", &self.0.epoch)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// How one watch of a cluster is doing, as data.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindStatus {
    /// What is watched: the kind and which of its objects.
    pub watch: String,
    /// The kind: `<plural>` or `<plural>.<group>`.
    pub kind: String,
    /// Whether it has been listed completely.
    pub synced: bool,
    /// How many objects are held.
    pub objects: usize,
    /// How many bytes of JSON are held.
    pub bytes: usize,
    /// How many objects were left out because they could not be read.
    pub skipped: u64,
    /// How many complete lists have been read.
    pub lists: u64,
    /// When something was last heard.
    #[serde(serialize_with = "crate::time::rfc3339_option")]
    pub last_event: Option<SystemTime>,
    /// What stands in the way, in words.
    pub problem: Option<String>,
    /// Whether someone has to change something before it can be listed: it is forbidden, or its kind is not
    /// served.
    pub blocked: bool,
}

/// Keeps a watch alive; made by [`Cluster::watch`]. Dropping the last handle of a watch ends it and frees its
/// store.
pub struct WatchHandle {
    cluster: Weak<Inner>,
    watch: Arc<SharedWatch>,
    sink: Option<u64>,
}

impl WatchHandle {
    /// What is watched.
    pub fn request(&self) -> &WatchRequest {
        self.watch.request()
    }

    /// How the watch is doing.
    pub fn status(&self) -> crate::watch::WatchStatus {
        self.watch.status()
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        if let Some(sink) = self.sink {
            self.watch.unsubscribe(sink);
        }
        let Some(cluster) = self.cluster.upgrade() else {
            return;
        };
        let mut watches = cluster.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = watches.by_request.get_mut(self.watch.request()) else {
            return;
        };
        if !Arc::ptr_eq(&entry.watch, &self.watch) {
            return;
        }
        entry.handles -= 1;
        if entry.handles == 0 {
            watches.by_request.remove(self.watch.request());
            #[cfg(mcr_planted)]
            if crate::planted::Bug::WatchLeft.on() {
                return;
            }
            // Without the lock: it waits for sinks, which may look at their cluster.
            drop(watches);
            self.watch.stop();
        }
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle")
            .field("request", self.watch.request())
            .finish_non_exhaustive()
    }
}
