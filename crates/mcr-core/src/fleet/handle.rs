//! The handle of a fleet.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Resource;
use mcr_store::{Indexer, Object};
use mcr_watch::WatchRequest;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    announced::{Announced, FleetSink, warn_if_empty},
    cluster::Cluster,
    context::FleetContext,
    counts::FleetCounts,
    desired::ProviderId,
    discovery::{ProviderSet, RunningProvider},
    events::FleetEvents,
    readiness::{self, NamedCheck},
    settings::FleetSettings,
    snapshot::{ClusterStatus, FleetSnapshot, ProviderStatus, ScopeStatus, show_duplicates},
    supervisor::Supervisors,
};
use crate::provider::Provider;

/// The clusters that providers announce. Each of them is supervised by itself.
///
/// A fleet does nothing until [`run`](Self::run). After that, clusters join, change and leave as providers announce.
/// A fleet is usable by itself; the `mcr` crate builds controllers on top of it.
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
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    context: Arc<FleetContext>,
    supervisors: Arc<Supervisors>,
    announced: Arc<Announced>,
    next_provider: AtomicU64,
    checks: Arc<[NamedCheck]>,
    started: AtomicBool,
}

/// There is no engaged cluster of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cluster {name} not found{}", hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
#[non_exhaustive]
pub struct ClusterNotFound {
    /// The name that was looked up.
    pub name: String,
    /// What is known about the name: its description can't be used, or its cluster is leaving.
    pub hint: Option<String>,
}

impl Fleet {
    pub(super) fn new(
        providers: Vec<Arc<dyn Provider>>,
        settings: FleetSettings,
        checks: Vec<NamedCheck>,
    ) -> Self {
        let context = Arc::new(FleetContext::new(settings));
        let supervisors = Arc::new(Supervisors::new(context.clone()));
        let announced = ProviderSet::new(FleetSink(supervisors.clone()), context.settings().removal_grace);
        let next_provider = AtomicU64::new(providers.len() as u64);
        for (id, provider) in (0..).map(ProviderId).zip(providers) {
            announced.add(id, provider);
        }
        Self(Arc::new(Inner {
            context,
            supervisors,
            announced: Arc::new(announced),
            next_provider,
            checks: checks.into(),
            started: AtomicBool::new(false),
        }))
    }

    /// Runs the fleet until `stop` is cancelled, then drains every cluster.
    ///
    /// Returns when no task of the fleet runs any more. A fleet runs once: a second call logs an error and returns at
    /// once.
    ///
    /// # Cancellation
    /// Dropping the future stops the fleet, but does not wait until its clusters are drained. They drain as long as the
    /// tokio runtime lives.
    pub async fn run(&self, stop: CancellationToken) {
        let (context, supervisors, announced) = (&self.0.context, &self.0.supervisors, &self.0.announced);
        if self.0.started.swap(true, Ordering::SeqCst) {
            tracing::error!("Fleet::run was called a second time; a fleet runs once");
            return;
        }
        context.resources.set_runtime();
        let _on_drop = context.token().clone().drop_guard();
        if announced.providers().is_empty() {
            tracing::warn!(
                "the fleet has no providers, so it has no cluster. Add one with FleetBuilder::provider or Fleet::add_provider"
            );
        }
        let tasks = &supervisors.tasks;
        tasks.spawn(warn_if_empty(announced.clone()));
        tasks.spawn(supervisors.clone().stop_members());
        if !self.0.checks.is_empty() {
            tasks.spawn(readiness::run(context.clone(), self.0.checks.clone()));
        }
        let mut discovering = announced.run(context.token().clone(), announced.sink().settings());
        // Ends only when the fleet stops, since providers can be added until then.
        while let Some(task) = stop.run_until_cancelled(discovering.next()).await {
            tasks.spawn(task);
        }
        context.token().cancel();
        tasks.close();
        tasks.wait().await;
    }

    /// Adds a provider, also while the fleet runs: its discovery then starts at once. Needs no runtime.
    ///
    /// Until the provider has announced all its clusters, the fleet is not [discovered](Self::is_discovered). If two providers
    /// announce the same name, the first one keeps it: a [`prefix`](crate::layer::prefix) keeps names apart.
    pub fn add_provider(&self, provider: impl Provider) -> ProviderId {
        let id = ProviderId(self.0.next_provider.fetch_add(1, Ordering::Relaxed));
        self.0.announced.add(id, Arc::new(provider));
        id
    }

    /// Removes a provider. Its clusters leave at once, without a grace period, and another provider that announces one of their
    /// names inherits it. Returns whether the fleet had the provider.
    pub fn remove_provider(&self, id: ProviderId) -> bool {
        self.0.announced.remove(id)
    }

    /// The engaged cluster of a name. Returns at once, without I/O.
    ///
    /// # Errors
    /// [`ClusterNotFound`] if no cluster of that name is engaged. The error contains what is known about the name.
    pub fn get(&self, name: &str) -> Result<Cluster, ClusterNotFound> {
        self.0.context.registry.get(name).ok_or_else(|| ClusterNotFound {
            name: name.to_owned(),
            hint: self.hint(name),
        })
    }

    /// Why a cluster may not be found.
    fn hint(&self, name: &str) -> Option<String> {
        if let Some(broken) = self.0.announced.desired().broken_of(name) {
            return Some(format!("its description can't be used: {broken}"));
        }
        let draining = self.0.context.registry.is_draining(name);
        draining.then(|| "it is leaving the fleet".to_owned())
    }

    /// The engaged clusters, in the order of their names.
    pub fn clusters(&self) -> Vec<Cluster> {
        let mut clusters = self.0.context.registry.clusters();
        clusters.sort_by(|a, b| a.name().cmp(b.name()));
        clusters
    }

    /// Subscribes to the events of the fleet. The engaged clusters come first, then every change.
    pub fn subscribe(&self) -> FleetEvents {
        FleetEvents::new(self.0.context.clone())
    }

    /// Adds an index of a kind to all clusters, also to those that join later: [`Store::by_index`](mcr_watch::Store::by_index)
    /// then finds objects by the values that `values` returns for them. An index of the same kind and name is replaced.
    pub fn index<K: Resource<DynamicType = ()> + DeserializeOwned + 'static>(
        &self,
        name: impl Into<Arc<str>>,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) {
        self.index_with(&(), name, values);
    }

    /// Like [`index`](Self::index), for a kind that is known at run time.
    pub fn index_with<K: Resource + DeserializeOwned + 'static>(
        &self,
        dynamic: &K::DynamicType,
        name: impl Into<Arc<str>>,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) {
        let indexer: Indexer =
            Arc::new(move |object: &Object| object.decode::<K>().ok().map(|object| values(&object)));
        let (kind, name) = (WatchRequest::with::<K>(dynamic), name.into());
        // Before the running watches, so that a watch that starts meanwhile has the index, too.
        self.0
            .context
            .resources
            .kinds
            .register_index(&kind, &name, &indexer);
        for cluster in self.0.context.registry.clusters() {
            cluster.add_index(&kind, &name, &indexer);
        }
        for endpoint in self.0.supervisors.endpoints.all() {
            endpoint.add_index(&kind, &name, &indexer);
        }
    }

    /// The current status of every cluster, provider and scope endpoint.
    pub fn snapshot(&self) -> FleetSnapshot {
        const HELD: &str =
            "kept: its provider lost most of its clusters at once, which looks like a fault of the source";
        let known = self.0.context.registry.with_draining();
        let mut clusters: Vec<ClusterStatus> = known.iter().map(ClusterStatus::of).collect();
        show_duplicates(&mut clusters, self.0.context.resources.identities.duplicates());
        let desired = self.0.announced.desired();
        for status in &mut clusters {
            if let Some(broken) = desired.broken_of(&status.name) {
                status.warnings.push(broken.to_string().into());
            }
            if desired.is_held(&status.name) {
                status.warnings.push(HELD.into());
            }
        }
        for (provider, broken) in desired.never_good() {
            let provider = self.0.announced.name_of(provider).unwrap_or_default();
            clusters.push(ClusterStatus::broken(broken, provider));
        }
        drop(desired);
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        FleetSnapshot {
            clusters,
            providers: self.providers(),
            scopes: self.scopes(),
        }
    }

    /// The current status of every scope endpoint that has clusters.
    pub fn scopes(&self) -> Vec<ScopeStatus> {
        let endpoints = self.0.supervisors.endpoints.all();
        let mut scopes: Vec<ScopeStatus> = endpoints.iter().map(|endpoint| endpoint.status()).collect();
        scopes.sort_by(|a, b| (&a.scope, &a.endpoint).cmp(&(&b.scope, &b.endpoint)));
        scopes
    }

    /// The counts of the fleet since it was built. They include clusters that have left.
    pub fn counts(&self) -> FleetCounts {
        self.0.context.counts().read()
    }

    /// The current status of every provider, in the order in which they were added.
    pub fn providers(&self) -> Vec<ProviderStatus> {
        let providers = self.0.announced.providers();
        providers.iter().map(|running| running.status()).collect()
    }

    /// Whether every provider has announced all its clusters at least once. These clusters are in the fleet then.
    pub fn is_discovered(&self) -> bool {
        let providers = self.0.announced.providers();
        providers
            .iter()
            .all(|running| running.status.read(|status| status.synced))
    }

    /// Waits until [`is_discovered`](Self::is_discovered), and returns true. Returns false if the fleet stops. Cancel safe.
    ///
    /// Waits for [`run`](Self::run) too, and without end for a provider that always fails: [`ready`](Self::ready) has a limit.
    pub async fn discovered(&self) -> bool {
        let discovered = async {
            loop {
                let providers = self.0.announced.providers();
                let pending = |running: &&Arc<RunningProvider>| !running.status.read(|status| status.synced);
                let Some(running) = providers.iter().find(pending) else {
                    return;
                };
                // One that is removed is not waited for any more.
                let synced = running.status.wait(|now| now.synced.then_some(()));
                running.removed.run_until_cancelled(synced).await;
            }
        };
        let token = self.0.context.token();
        token.run_until_cancelled(discovered).await.is_some()
    }

    /// Waits until all clusters are [`discovered`](Self::discovered) and ready: they answer, and every kind that is watched in
    /// them is listed. Then returns the [`snapshot`](Self::snapshot), in which [`FleetSnapshot::not_ready`] says which clusters
    /// and providers are not ready, and why. Cancel safe.
    ///
    /// Waits at most `limit`, for example if a cluster is dead. Returns earlier if the fleet stops. Does not wait for clusters
    /// that are suspended, are leaving or have an unusable description.
    pub async fn ready(&self, limit: Duration) -> FleetSnapshot {
        let decided = async {
            let mut again = self.discovered().await;
            // While it waits for one cluster, others may join or become unready.
            while std::mem::take(&mut again) {
                for cluster in self.clusters() {
                    again |= cluster.wait_until_synced().await;
                }
            }
        };
        let _ = timeout(limit, self.0.context.token().run_until_cancelled(decided)).await;
        self.snapshot()
    }

    /// Removes the clusters that are held: a restarted discovery no longer names them, but they are more than half of the
    /// clusters of its provider.
    pub fn release_held(&self) {
        self.0.announced.release_held(None);
    }

    /// How long running work of a leaving cluster may take to end.
    pub fn drain_grace(&self) -> Duration {
        self.0.context.settings().drain_grace
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.context.fmt(f)
    }
}
