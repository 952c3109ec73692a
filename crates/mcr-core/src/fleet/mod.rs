//! The fleet: which clusters there are, and the life of each.

mod connect;
mod counts;
mod description;
mod desired;
mod discovery;
mod events;
mod host;
mod life;
mod member;
mod probe;
mod serve;
mod settings;
mod snapshot;
mod state;
mod supervisor;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use futures::{StreamExt, stream};
use kube::{Client, Resource};
use mcr_access::internal::WeakCache;
use mcr_client::Dialer;
use mcr_store::{Indexer, Object, TemplateRegistry};
use mcr_watch::{Store, WatchRequest};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{counts::Counts, desired::Desired, events::Subscribers, host::Hosts, supervisor::Slots};
use crate::{Access, Change, Cluster, ClusterName, ClusterSpec, Discovery, Provider};

pub use counts::{CredentialCounts, FleetCounts};
pub(crate) use description::Description;
pub use events::{FleetEvent, FleetEvents};
pub use host::Upstream;
pub(crate) use member::Seat;
pub use settings::FleetSettings;
pub use snapshot::{ClusterStatus, FleetSnapshot, ProviderStatus, ScopeStatus, ScopeWatchStatus};
pub use state::ClusterState;

/// The clusters that providers announce, each living its own supervised life.
///
/// A fleet does nothing until [`run`](Self::run); after that clusters join, change and leave as providers say.
/// It is usable by itself; the `mcr` crate builds controllers on top.
///
/// ```no_run
/// use mcr_core::{Fleet, FleetEvent, Provider};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example(provider: impl Provider) {
/// let fleet = Fleet::builder().provider(provider).build();
/// let mut events = fleet.subscribe();
/// let stop = CancellationToken::new();
/// tokio::spawn({ let fleet = fleet.clone(); let stop = stop.clone(); async move { fleet.run(stop).await } });
/// while let FleetEvent::Engaged(cluster) = events.next().await {
///     println!("{} joined", cluster.name());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fleet(Arc<FleetShared>);

/// What the parts of a fleet share.
pub(crate) struct FleetShared {
    settings: FleetSettings,
    providers: Vec<RunningProvider>,
    desired: Mutex<Desired>,
    /// Held while what is desired is changed and acted upon.
    acting: Mutex<()>,
    runtime: OnceLock<tokio::runtime::Handle>,
    sweep_changed: Notify,
    slots: Mutex<Slots>,
    /// The endpoints of scopes.
    hosts: Hosts,
    /// How many clusters and endpoints of scopes are connected to, or tried.
    lives: AtomicUsize,
    /// Clusters that are engaged, from their announcement to the beginning of their end.
    registry: DashMap<ClusterName, Cluster>,
    draining: DashMap<(ClusterName, u64), Cluster>,
    subscribers: Subscribers,
    counts: Counts,
    /// Of each kind, as long as a watch of it holds them.
    templates: WeakCache<TemplateRegistry, WatchRequest>,
    indexes: RwLock<Vec<RegisteredIndex>>,
    dialer: Dialer,
    connect_permits: Arc<Semaphore>,
    list_permits: Arc<Semaphore>,
    next_epoch: AtomicU64,
    token: CancellationToken,
    tasks: TaskTracker,
    started: AtomicBool,
}

struct RunningProvider {
    name: Arc<str>,
    provider: Arc<dyn Provider>,
    status: Mutex<ProviderStatus>,
}

struct RegisteredIndex {
    kind: WatchRequest,
    name: Arc<str>,
    indexer: Indexer,
}

impl RunningProvider {
    fn new(provider: Arc<dyn Provider>) -> Self {
        let name: Arc<str> = provider.name().into();
        let status = ProviderStatus {
            name: name.clone(),
            synced: false,
            restarts: 0,
            last_error: None,
        };
        Self {
            name,
            provider,
            status: Mutex::new(status),
        }
    }

    fn update(&self, change: impl FnOnce(&mut ProviderStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn status(&self) -> ProviderStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Puts a [`Fleet`] together.
#[derive(Default)]
#[must_use]
pub struct FleetBuilder {
    providers: Vec<Arc<dyn Provider>>,
    settings: FleetSettings,
}

impl FleetBuilder {
    /// Adds a provider. Providers don't disturb each other; where two announce the same name, the first keeps
    /// it.
    pub fn provider(mut self, provider: impl Provider) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Changes settings.
    pub fn settings(mut self, change: impl FnOnce(&mut FleetSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Builds the fleet, which then waits for [`Fleet::run`].
    #[must_use]
    pub fn build(self) -> Fleet {
        let token = CancellationToken::new();
        Fleet(Arc::new(FleetShared {
            providers: self.providers.into_iter().map(RunningProvider::new).collect(),
            desired: Mutex::default(),
            acting: Mutex::default(),
            runtime: OnceLock::new(),
            sweep_changed: Notify::new(),
            slots: Mutex::default(),
            hosts: Hosts::default(),
            registry: DashMap::new(),
            draining: DashMap::new(),
            subscribers: Subscribers::default(),
            counts: Counts::default(),
            templates: WeakCache::default(),
            indexes: RwLock::default(),
            dialer: Dialer::with_settings(&self.settings.access_policy, self.settings.transport.clone()),
            connect_permits: Arc::new(Semaphore::new(self.settings.connects.max(1))),
            list_permits: Arc::new(Semaphore::new(self.settings.lists.max(1))),
            next_epoch: AtomicU64::new(1),
            lives: AtomicUsize::new(0),
            token,
            tasks: TaskTracker::new(),
            started: AtomicBool::new(false),
            settings: self.settings,
        }))
    }
}

impl std::fmt::Debug for FleetBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let providers: Vec<&str> = self.providers.iter().map(|provider| provider.name()).collect();
        f.debug_struct("FleetBuilder")
            .field("providers", &providers)
            .finish_non_exhaustive()
    }
}

/// There is no such cluster, or none that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cluster {name} not found{}", hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
#[non_exhaustive]
pub struct ClusterNotFound {
    /// The name that was asked for.
    pub name: String,
    /// What is known about the name all the same: a description that can't be used, a cluster that is leaving.
    pub hint: Option<String>,
}

/// The name of the only cluster of [`Fleet::single`].
pub const SINGLE_CLUSTER: &str = "local";

/// By convention the name of the cluster that holds the fleet's own objects; controllers leave it out unless
/// they ask for it.
pub const HUB: &str = "hub";

impl Fleet {
    /// Starts to put a fleet together.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// A fleet of the one cluster this client talks to, named `local`: the same program on a single cluster.
    pub fn single(client: Client) -> Self {
        struct Single(Access);
        impl Provider for Single {
            fn name(&self) -> &str {
                "single"
            }
            fn discover(&self, stop: CancellationToken) -> Discovery {
                let only = ClusterName::new(SINGLE_CLUSTER)
                    .map(|name| Change::Upsert(ClusterSpec::new(name, self.0.clone())))
                    .map_err(Into::into);
                stream::iter([only, Ok(Change::Synced)])
                    .chain(stream::pending())
                    .take_until(stop.cancelled_owned())
                    .boxed()
            }
        }
        Self::builder().provider(Single(Access::from(client))).build()
    }

    /// Runs the fleet until `stop` is cancelled, then drains every cluster.
    ///
    /// Returns when nothing of the fleet runs any more. A fleet runs once: a second call returns at once with
    /// an error in the log.
    ///
    /// # Cancellation
    /// Dropping the future stops the fleet without waiting for its clusters to drain; they drain on their own
    /// as long as the tokio runtime lives.
    pub async fn run(&self, stop: CancellationToken) {
        let shared = &self.0;
        if shared.started.swap(true, Ordering::SeqCst) {
            tracing::error!("Fleet::run was called a second time; a fleet runs once");
            return;
        }
        let _ = shared.runtime.set(tokio::runtime::Handle::current());
        let _on_drop = shared.token.clone().drop_guard();
        if shared.providers.is_empty() {
            tracing::warn!(
                "the fleet has no providers, so it will never have a cluster. Add one with FleetBuilder::provider"
            );
        }
        for id in 0..shared.providers.len() {
            shared.tasks.spawn(shared.clone().run_provider(id));
        }
        shared.tasks.spawn(shared.clone().run_sweeper());
        shared.tasks.spawn(shared.clone().explain_emptiness());
        shared.tasks.spawn(shared.clone().let_members_go());
        stop.cancelled().await;
        shared.token.cancel();
        shared.tasks.close();
        shared.tasks.wait().await;
    }

    /// A cluster by its name; without I/O and at once.
    ///
    /// # Errors
    /// [`ClusterNotFound`] if no such cluster is engaged, with what is known about the name all the same.
    pub fn get(&self, name: &str) -> Result<Cluster, ClusterNotFound> {
        self.0.cluster(name).ok_or_else(|| ClusterNotFound {
            name: name.to_owned(),
            hint: self.0.hint(name),
        })
    }

    /// The engaged clusters, in the order of their names.
    pub fn clusters(&self) -> Vec<Cluster> {
        let mut clusters = self.0.clusters();
        clusters.sort_by(|a, b| a.name().cmp(b.name()));
        clusters
    }

    /// Follows the clusters: those there are, then every change.
    pub fn subscribe(&self) -> FleetEvents {
        FleetEvents::new(self.0.clone())
    }

    /// Indexes a kind in all clusters, those that are there and those to come: [`Store::by_index`] then finds
    /// objects by the values that `values` gives for them. Registering a name again replaces the index.
    pub fn index<K>(
        &self,
        name: impl Into<Arc<str>>,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let indexer: Indexer =
            Arc::new(move |object: &Object| object.decode::<K>().ok().map(|object| values(&object)));
        let (kind, name) = (WatchRequest::of::<K>(), name.into());
        {
            let mut indexes = self.0.indexes.write().unwrap_or_else(PoisonError::into_inner);
            indexes.retain(|known| known.name != name || !known.kind.same_kind(&kind));
            indexes.push(RegisteredIndex {
                kind: kind.clone(),
                name: name.clone(),
                indexer: indexer.clone(),
            });
        }
        for cluster in self.0.clusters() {
            cluster.add_index(&kind, &name, &indexer);
        }
        for host in self.0.hosts.all() {
            host.add_index(&kind, &name, &indexer);
        }
    }

    /// The stores of a kind in all clusters that watch it.
    pub fn stores<K>(&self) -> Vec<(Cluster, Store<K>)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.clusters()
            .into_iter()
            .filter_map(|c| c.store::<K>().ok().map(|store| (c, store)))
            .collect()
    }

    /// Reads the objects of a kind in all clusters that watch it, in the order of the clusters' names.
    ///
    /// Objects that can't be decoded are left out with a warning in the log.
    pub fn list<K>(&self) -> Vec<(Cluster, Arc<K>)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.read_all(|store| store.list().ok())
    }

    /// Reads the objects that are found under a value of an index in all clusters that watch the kind, in the order
    /// of the clusters' names. Register the index with [`index`](Self::index).
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn example(fleet: &mcr_core::Fleet) {
    /// for (cluster, map) in fleet.by_index::<ConfigMap>("type", "human") {
    ///     println!("{}: {:?}", cluster.name(), map.metadata.name);
    /// }
    /// # }
    /// ```
    pub fn by_index<K>(&self, index: &str, value: &str) -> Vec<(Cluster, Arc<K>)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.read_all(|store| store.by_index(index, value).ok())
    }

    fn read_all<K>(&self, read: impl Fn(&Store<K>) -> Option<Vec<Arc<K>>>) -> Vec<(Cluster, Arc<K>)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        // A cluster that leaves between the two looks has nothing to tell any more.
        let found = self.stores::<K>().into_iter().filter_map(|(cluster, store)| {
            let objects = read(&store)?;
            Some(objects.into_iter().map(move |object| (cluster.clone(), object)))
        });
        found.flatten().collect()
    }

    /// The state of every cluster and provider at this moment.
    pub fn snapshot(&self) -> FleetSnapshot {
        let shared = &self.0;
        let mut there = shared.clusters();
        there.extend(shared.draining.iter().map(|entry| entry.value().clone()));
        // One that begins to leave between the two looks is in both.
        there.sort_by_key(Cluster::epoch);
        there.dedup_by_key(|cluster| cluster.epoch());
        let mut clusters: Vec<ClusterStatus> = there.iter().map(ClusterStatus::of).collect();
        {
            let desired = shared.desired();
            for status in &mut clusters {
                if let Some(broken) = desired.broken_of(&status.name) {
                    status
                        .warnings
                        .push(format!("{}: {}", broken.object, broken.error).into());
                }
                if desired.is_held(&status.name) {
                    status.warnings.push(
                        "discovery no longer names it, but too many were lost at once to believe it".into(),
                    );
                }
            }
            for (provider, broken) in desired.never_good() {
                let provider = shared.providers[provider].name.clone();
                let reason = format!("{}: {}", broken.object, broken.error);
                clusters.push(ClusterStatus::broken(
                    broken.name.clone(),
                    provider,
                    reason.into(),
                ));
            }
        }
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        FleetSnapshot {
            clusters,
            providers: self.providers(),
            scopes: self.scopes(),
        }
    }

    /// The endpoints of scopes that clusters of the fleet stand behind.
    pub fn scopes(&self) -> Vec<ScopeStatus> {
        let mut scopes: Vec<ScopeStatus> = self.0.hosts.all().iter().map(|host| host.status()).collect();
        scopes.sort_by(|a, b| (&a.scope, &a.endpoint).cmp(&(&b.scope, &b.endpoint)));
        scopes
    }

    /// What the fleet did since it was built, summed over all clusters there ever were.
    pub fn counts(&self) -> FleetCounts {
        self.0.counts.read()
    }

    /// The state of every provider at this moment, in the order they were given.
    pub fn providers(&self) -> Vec<ProviderStatus> {
        self.0.providers.iter().map(RunningProvider::status).collect()
    }

    /// Whether every provider has said everything at least once.
    pub fn is_discovered(&self) -> bool {
        self.0.providers.iter().all(|provider| provider.status().synced)
    }

    /// Removes the clusters that a restarted discovery no longer names and that are held because they are more than half of
    /// those of its provider.
    pub fn release_held(&self) {
        self.0.change_desired(Desired::release_held);
    }

    /// How long running work of a leaving cluster may take to end.
    pub fn drain_grace(&self) -> Duration {
        self.0.settings.drain_grace
    }
}

impl FleetShared {
    /// After how long of silence one of its clusters is probed.
    fn probe_after(&self) -> Duration {
        self.settings
            .probe_after_among(self.lives.load(Ordering::Relaxed))
    }

    pub(crate) fn settings(&self) -> &FleetSettings {
        &self.settings
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(crate) fn list_permits(&self) -> Arc<Semaphore> {
        self.list_permits.clone()
    }

    /// How many clusters there are, as far as it matters for what is spread over time.
    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.registry.len()).map_or(10_000, |size| size.min(10_000))
    }

    pub(crate) fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What objects of a kind have in common.
    pub(crate) fn templates(&self, request: &WatchRequest) -> Arc<TemplateRegistry> {
        let make = || Ok::<_, Infallible>(Arc::new(TemplateRegistry::new(request.encoding())));
        let Ok(templates) = self.templates.get_or_try_insert(request.whole_kind(), make);
        templates
    }

    pub(crate) fn publish(&self, name: &ClusterName) {
        self.subscribers.publish(name);
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<Cluster> {
        self.registry.get(name).map(|entry| entry.value().clone())
    }

    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.registry.iter().map(|entry| entry.value().clone()).collect()
    }

    pub(crate) fn indexers_of(&self, kind: &WatchRequest) -> Vec<(Arc<str>, Indexer)> {
        let indexes = self.indexes.read().unwrap_or_else(PoisonError::into_inner);
        indexes
            .iter()
            .filter(|index| index.kind.same_kind(kind))
            .map(|index| (index.name.clone(), index.indexer.clone()))
            .collect()
    }

    fn hint(&self, name: &str) -> Option<String> {
        if let Some(broken) = self.desired().broken_of(name) {
            return Some(format!(
                "its description can't be used: {}: {}",
                broken.object, broken.error
            ));
        }
        let leaving = self.draining.iter().any(|entry| entry.key().0 == *name);
        leaving.then(|| "it is leaving the fleet".to_owned())
    }

    /// Clusters in scopes have no task that would see the fleet stop.
    async fn let_members_go(self: Arc<Self>) {
        self.token.cancelled().await;
        member::stop(&self);
    }

    /// A controller that reconciles nothing and says nothing is the hardest to find the fault of.
    async fn explain_emptiness(self: Arc<Self>) {
        const PATIENCE: Duration = Duration::from_secs(10);
        tokio::select! {
            () = tokio::time::sleep(PATIENCE) => {}
            () = self.token.cancelled() => return,
        }
        if !self.registry.is_empty() {
            return;
        }
        let broken = self.desired().never_good().count();
        for provider in &self.providers {
            let status = provider.status();
            let state = match (&status.last_error, status.synced) {
                (Some(error), _) => format!("its discovery fails: {error}"),
                (None, true) => "it has looked everywhere and found none".to_owned(),
                (None, false) => "it has not finished looking".to_owned(),
            };
            tracing::warn!(provider = %provider.name, %state, broken, "the fleet has no clusters after {} s", PATIENCE.as_secs());
        }
    }
}

impl std::fmt::Debug for FleetShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("clusters", &self.registry.len())
            .finish_non_exhaustive()
    }
}
