//! A set of providers that changes while it runs. It runs their discoveries, and decides which clusters there should be.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use mcr_client::internal::{
    Backoff, Observable,
    user_code::{ANNOUNCED, Panicked, catch_panic},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    desired::{Desired, Effect, KnownCluster, ProviderId},
    snapshot::ProviderStatus,
};
use crate::{
    attempt::Attempt,
    provider::{BrokenCluster, Change, DiscoverySettings, Provider},
    rounds::HeldClusters,
    spec::ClusterSpec,
};
use mcr_access::ClusterName;

/// Receives the clusters of a [`ProviderSet`].
///
/// The calls for one set come one after the other, also those for different providers. They must not call the set.
pub trait ClusterSink: Send + Sync + 'static {
    /// The form in which the set stores a spec.
    type Spec: Send + Sync + 'static;

    /// Converts an announced spec into the form that the set stores. Only the provider of the spec waits for it.
    fn store(&self, spec: ClusterSpec) -> impl Future<Output = Self::Spec> + Send;

    /// A cluster is announced: a new one, or a known one again. `provider` is the name of the provider.
    fn set(&self, provider: &Arc<str>, name: &ClusterName, spec: &Arc<Self::Spec>);

    /// A cluster is removed.
    fn unset(&self, name: &ClusterName);

    /// The description of a cluster can't be used, or a cluster without a usable description is removed (`None`).
    fn show_broken(&self, name: &ClusterName, broken: Option<&BrokenCluster>);

    /// Called before the set notes that a provider has announced all its clusters: the set waits for the future first.
    fn joined(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called after each change of a provider, whose next change waits for the future.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Several providers as one source of clusters. Providers can be added and removed at any time.
///
/// Each provider runs by itself: if its discovery fails, it is started again after a growing pause, and its clusters stay. Once it
/// has announced all its clusters again, the others are removed after a grace period, unless they are most of its clusters: then
/// they are held. If two providers announce the same name, the first one keeps it.
///
/// A [`Fleet`](super::Fleet) is such a set, with [`Fleet::add_provider`](super::Fleet::add_provider). The type is public for
/// providers that are made of others.
pub struct ProviderSet<S: ClusterSink> {
    sink: S,
    removal_grace: Duration,
    /// In the order of their numbers.
    providers: Mutex<BTreeMap<ProviderId, Arc<RunningProvider>>>,
    desired: Mutex<Desired<S::Spec>>,
    /// Locked while a change is made and applied.
    change: Mutex<()>,
    added: Notify,
    sweep_changed: Notify,
}

impl<S: ClusterSink> ProviderSet<S> {
    /// A set without providers. A cluster that a restarted provider no longer announces is removed after `removal_grace`.
    pub fn new(sink: S, removal_grace: Duration) -> Self {
        Self {
            sink,
            removal_grace,
            providers: Mutex::default(),
            desired: Mutex::default(),
            change: Mutex::default(),
            added: Notify::new(),
            sweep_changed: Notify::new(),
        }
    }

    /// The receiver of the clusters.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// Adds a provider, unless the set has one of this number. Its discovery starts at once if the set runs.
    pub fn add(&self, id: ProviderId, provider: Arc<dyn Provider>) {
        let running = || Arc::new(RunningProvider::new(provider));
        self.providers.lock().entry(id).or_insert_with(running);
        self.added.notify_waiters();
    }

    /// Removes a provider and all its clusters, without a grace period. Returns whether it was in the set.
    pub fn remove(&self, id: ProviderId) -> bool {
        // While no change is applied: no change of the provider comes after this.
        let change = self.change.lock();
        let removed = self.providers.lock().remove(&id);
        if let Some(removed) = &removed {
            removed.removed.cancel();
            let effects = self.desired().remove_provider(id);
            log_panic(self.apply(effects));
        }
        drop(change);
        self.sweep_changed.notify_one();
        // Without a lock, because dropping a provider is code of users.
        removed.is_some()
    }

    /// Removes the clusters that are held: those of one provider, or all.
    pub fn release_held(&self, only: Option<ProviderId>) {
        log_panic(self.change(|desired| desired.release_held(only)));
    }

    /// The numbers of all providers, in order.
    pub fn ids(&self) -> Vec<ProviderId> {
        self.providers.lock().keys().copied().collect()
    }

    /// The status of a provider. `None` if it is not in the set.
    pub fn status(&self, id: ProviderId) -> Option<ProviderStatus> {
        Some(self.providers.lock().get(&id)?.status())
    }

    /// The clusters that a provider has announced, in the order of their names.
    pub fn known(&self, id: ProviderId) -> Vec<KnownCluster<S::Spec>> {
        self.desired().known(id)
    }

    /// Starts to run the set until `stop` is cancelled: the caller runs each future of
    /// [`Discovering::next`]. The caller may run a set again, after all futures have ended or were dropped.
    pub fn run(self: &Arc<Self>, stop: CancellationToken, settings: DiscoverySettings) -> Discovering<S> {
        // Without the lock of the providers, which other calls take after that of the table.
        let providers: Vec<_> = self
            .providers
            .lock()
            .iter()
            .map(|(id, running)| (*id, running.clone()))
            .collect();
        for (id, running) in providers {
            running.started.store(false, Ordering::Relaxed);
            running.status.change(|status| {
                status.synced = false;
                status.failing_since = None;
            });
            self.desired().begin_run(id);
        }
        Discovering {
            set: self.clone(),
            stop,
            settings,
            sweeps: false,
        }
    }

    pub(crate) fn desired(&self) -> MutexGuard<'_, Desired<S::Spec>> {
        self.desired.lock()
    }

    /// The providers, in the order of their numbers.
    pub(crate) fn providers(&self) -> Vec<Arc<RunningProvider>> {
        self.providers.lock().values().cloned().collect()
    }

    pub(crate) fn name_of(&self, id: ProviderId) -> Option<Arc<str>> {
        Some(self.providers.lock().get(&id)?.name.clone())
    }

    /// Runs the discovery of one provider until it is removed or the set stops. Starts it again whenever it ends.
    async fn run_provider(
        self: Arc<Self>,
        id: ProviderId,
        running: Arc<RunningProvider>,
        stop: CancellationToken,
        settings: DiscoverySettings,
    ) {
        let run = self.restart(id, &running, &stop, &settings);
        tokio::select! {
            // First, so that a discovery that ends because it was stopped has not failed.
            biased;
            () = stop.cancelled() => {}
            () = running.removed.cancelled() => {}
            () = run => {}
        }
    }

    async fn restart(
        &self,
        id: ProviderId,
        running: &RunningProvider,
        stop: &CancellationToken,
        settings: &DiscoverySettings,
    ) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        loop {
            log_panic(self.change_of(id, |desired| {
                desired.begin_round(id);
                Vec::new()
            }));
            let started = Instant::now();
            let error = self.listen(id, running, stop.child_token(), settings).await;
            if started.elapsed() > Duration::from_secs(60) {
                backoff.reset();
            }
            let pause = backoff.pause();
            tracing::warn!(provider = %running.name, %error, retry_in = ?pause, "discovery ended, starting it again");
            running.status.change(|status| {
                status.restarts += 1;
                status
                    .failing_since
                    .get_or_insert_with(std::time::SystemTime::now);
                status.last_error = Some(error);
            });
            sleep(pause).await;
        }
    }

    /// Applies the changes of one discovery until it ends. Returns why it ended.
    async fn listen(
        &self,
        id: ProviderId,
        running: &RunningProvider,
        stop: CancellationToken,
        settings: &DiscoverySettings,
    ) -> String {
        let mut attempt = match Attempt::begin(&*running.provider, stop, settings) {
            Ok(attempt) => attempt,
            Err(error) => return error,
        };
        loop {
            let change = match attempt.next().await {
                Ok(change) => change,
                Err(error) => return error,
            };
            // The values that the change replaces are dropped here, and are code of users. A panic loses no change, because the
            // provider is started again and announces everything again.
            let applied = match change {
                Change::Upsert(spec) => {
                    let name = spec.name.clone();
                    // Before its cluster joins: users can take a client from then on, which needs the default namespace.
                    let spec = self.sink.store(spec).await;
                    catch_panic(ANNOUNCED, || {
                        self.change_of(id, |desired| desired.upsert(id, name, spec))
                    })
                }
                Change::Broken(broken) => catch_panic(ANNOUNCED, || self.broken(id, running, broken)),
                Change::Remove(cluster) => catch_panic(ANNOUNCED, || {
                    self.change_of(id, |desired| desired.remove(id, &cluster))
                }),
                Change::Synced => {
                    self.sink.joined().await;
                    catch_panic(ANNOUNCED, || self.synced(id, running))
                }
            };
            if let Err(panicked) | Ok(Err(panicked)) = applied {
                return panicked.to_string();
            }
            self.sweep_changed.notify_one();
            self.sink.ready().await;
        }
    }

    fn broken(
        &self,
        id: ProviderId,
        running: &RunningProvider,
        broken: BrokenCluster,
    ) -> Result<(), Panicked> {
        let known = self
            .desired()
            .broken_of(&broken.name)
            .is_some_and(|known| known.error == broken.error);
        if !known {
            tracing::warn!(provider = %running.name, cluster = %broken.name, object = %broken.object, error = %broken.error, "the description of a cluster can't be used");
        }
        self.change_of(id, |desired| desired.broken(id, broken))
    }

    fn synced(&self, id: ProviderId, running: &RunningProvider) -> Result<(), Panicked> {
        running.status.change(|status| {
            status.synced = true;
            status.failing_since = None;
        });
        self.change_of(id, |desired| {
            desired.synced(id, Instant::now(), self.removal_grace)
        })
    }

    /// Makes a change of a provider, unless the provider was removed meanwhile.
    fn change_of(
        &self,
        id: ProviderId,
        change: impl FnOnce(&mut Desired<S::Spec>) -> Vec<Effect<S::Spec>>,
    ) -> Result<(), Panicked> {
        self.change(|desired| {
            if self.name_of(id).is_some() {
                change(desired)
            } else {
                Vec::new()
            }
        })
    }

    /// Changes the table of claims and applies the effects, as one step: no other change comes between the two.
    fn change(
        &self,
        change: impl FnOnce(&mut Desired<S::Spec>) -> Vec<Effect<S::Spec>>,
    ) -> Result<(), Panicked> {
        let _change = self.change.lock();
        let effects = change(&mut self.desired());
        // Without the lock of the table: a sink may wait for code of users, which may look up a cluster.
        self.apply(effects)
    }

    /// Applies all effects, also those after one whose code of users panics.
    ///
    /// # Errors
    /// The first panic.
    fn apply(&self, effects: Vec<Effect<S::Spec>>) -> Result<(), Panicked> {
        let applied = effects
            .into_iter()
            .map(|effect| catch_panic(ANNOUNCED, || self.apply_one(effect)));
        applied.fold(Ok(()), Result::and)
    }

    fn apply_one(&self, effect: Effect<S::Spec>) {
        let name_of = |id| self.name_of(id).unwrap_or_default();
        match effect {
            Effect::Dropped { .. } => {}
            Effect::Set(provider, name, spec) => self.sink.set(&name_of(provider), &name, &spec),
            Effect::Unset(name) => self.sink.unset(&name),
            Effect::StatusChanged(name) => {
                let broken = self.desired().broken_of(&name).cloned();
                self.sink.show_broken(&name, broken.as_ref());
            }
            Effect::Clash { name, holder, late } => {
                let (holder, late) = (name_of(holder), name_of(late));
                tracing::error!(cluster = %name, %holder, provider = %late, "two providers announce a cluster of the same name: the first keeps it and the second waits. Put a prefix layer on one of them");
            }
            Effect::Held(provider, HeldClusters { missing, known }) => tracing::error!(
                provider = %name_of(provider),
                missing,
                of = known,
                "a restarted discovery no longer names most clusters of its provider: none is removed. If they are really gone, call release_held"
            ),
        }
    }

    /// Removes the clusters whose grace period is over, until the set stops.
    async fn sweep(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let next = self.desired().next_sweep();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {
                    let sweep = || self.change(|desired| desired.sweep(Instant::now()));
                    log_panic(catch_panic(ANNOUNCED, sweep).and_then(|swept| swept));
                }
                () = self.sweep_changed.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

/// Logs a panic after which no provider is started again.
fn log_panic(applied: Result<(), Panicked>) {
    if let Err(error) = applied {
        tracing::error!(%error, "removing a cluster panicked, so the cluster may stay in the fleet");
    }
}

impl<S: ClusterSink> std::fmt::Debug for ProviderSet<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self
            .providers()
            .iter()
            .map(|running| running.name.clone())
            .collect();
        f.debug_struct("ProviderSet")
            .field("providers", &names)
            .finish_non_exhaustive()
    }
}

/// A [`ProviderSet`] that runs.
pub struct Discovering<S: ClusterSink> {
    set: Arc<ProviderSet<S>>,
    stop: CancellationToken,
    settings: DiscoverySettings,
    sweeps: bool,
}

impl<S: ClusterSink> Discovering<S> {
    /// The next future to run: one for each provider, as soon as it is in the set, and one that ends grace periods. The futures end
    /// when the set stops; that of a provider also when it is removed. Cancel safe.
    ///
    /// # Cancellation
    /// Dropping the future of a provider drops its discovery.
    pub async fn next(&mut self) -> BoxFuture<'static, ()> {
        if !std::mem::replace(&mut self.sweeps, true) {
            return self.set.clone().sweep(self.stop.clone()).boxed();
        }
        loop {
            let added = self.set.added.notified();
            tokio::pin!(added);
            // Before the look at the providers, so that none that is added meanwhile is missed.
            added.as_mut().enable();
            let new = |(_, running): &(&ProviderId, &Arc<RunningProvider>)| {
                !running.started.swap(true, Ordering::Relaxed)
            };
            let next = self
                .set
                .providers
                .lock()
                .iter()
                .find(new)
                .map(|(id, running)| (*id, running.clone()));
            if let Some((id, running)) = next {
                let (stop, settings) = (self.stop.clone(), self.settings.clone());
                return self.set.clone().run_provider(id, running, stop, settings).boxed();
            }
            added.await;
        }
    }
}

impl<S: ClusterSink> std::fmt::Debug for Discovering<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovering")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}

/// A provider in a [`ProviderSet`].
pub(crate) struct RunningProvider {
    name: Arc<str>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) status: Observable<ProviderStatus>,
    /// Cancelled when the provider is removed.
    pub(crate) removed: CancellationToken,
    /// Whether this run of the set has started its discovery.
    started: AtomicBool,
}

impl RunningProvider {
    fn new(provider: Arc<dyn Provider>) -> Self {
        let name: Arc<str> = provider.name().into();
        Self {
            status: Observable::new(ProviderStatus {
                name: name.clone(),
                synced: false,
                restarts: 0,
                last_error: None,
                failing_since: None,
            }),
            name,
            provider,
            removed: CancellationToken::new(),
            started: AtomicBool::new(false),
        }
    }

    pub(crate) fn status(&self) -> ProviderStatus {
        self.status.read(Clone::clone)
    }
}
