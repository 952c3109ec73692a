//! Runs the discoveries of the providers, and engages and removes clusters as they announce.

use std::{sync::Arc, time::Duration};

use mcr_client::internal::{
    Backoff, Observable,
    user_code::{ANNOUNCED, DISCOVERY, catch_panic},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    context::FleetContext,
    description::Description,
    desired::{Desired, Effect, ProviderId},
    snapshot::ProviderStatus,
    supervisor::Supervisors,
};
use crate::{
    attempt::Attempt,
    provider::{BrokenCluster, Change, DiscoverySettings, Provider},
    rounds::HeldClusters,
};

/// The discoveries of a fleet.
pub(crate) struct Discoveries {
    supervisors: Arc<Supervisors>,
    pub(crate) providers: Vec<RunningProvider>,
    desired: Mutex<Desired>,
    /// Locked while a change is made and applied.
    change: Mutex<()>,
    sweep_changed: Notify,
}

impl Discoveries {
    pub(crate) fn new(supervisors: Arc<Supervisors>, providers: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            supervisors,
            providers: providers.into_iter().map(RunningProvider::new).collect(),
            desired: Mutex::default(),
            change: Mutex::default(),
            sweep_changed: Notify::new(),
        }
    }

    pub(crate) fn desired(&self) -> MutexGuard<'_, Desired> {
        self.desired.lock()
    }

    fn fleet(&self) -> &FleetContext {
        &self.supervisors.fleet
    }

    fn token(&self) -> &CancellationToken {
        self.fleet().token()
    }

    fn settings(&self) -> DiscoverySettings {
        let settings = self.fleet().settings();
        DiscoverySettings {
            watch: settings.watch.clone(),
            ..settings.access_policy.clone().into()
        }
    }

    /// Runs the discovery of one provider until the fleet stops. Starts it again whenever it ends.
    pub(crate) async fn run_provider(self: Arc<Self>, id: ProviderId) {
        let RunningProvider { name, provider, .. } = &self.providers[id];
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));
        loop {
            self.desired().begin_round(id);
            let started = Instant::now();
            let error = tokio::select! {
                error = self.listen(id, &**provider) => error,
                () = self.token().cancelled() => return,
            };
            if self.token().is_cancelled() {
                return;
            }
            if started.elapsed() > Duration::from_secs(60) {
                backoff.reset();
            }
            let pause = backoff.pause();
            tracing::warn!(provider = %name, %error, retry_in = ?pause, "discovery ended, starting it again");
            self.providers[id].status.change(|status| {
                status.restarts += 1;
                status.last_error = Some(error);
            });
            tokio::select! {
                () = sleep(pause) => {}
                () = self.token().cancelled() => return,
            }
        }
    }

    /// Applies the changes of one discovery until it ends. Returns why it ended.
    async fn listen(self: &Arc<Self>, id: ProviderId, provider: &dyn Provider) -> String {
        let stop = self.token().child_token();
        let mut attempt = match Attempt::begin(provider, stop, &self.settings()) {
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
            let taken = match change {
                Change::Upsert(spec) => {
                    // Before its cluster joins: users can take a client from then on, which needs the default namespace.
                    let spec = Description::parse(spec).await;
                    catch_panic(ANNOUNCED, || self.change(|desired| desired.upsert(id, spec)))
                }
                Change::Broken(broken) => catch_panic(ANNOUNCED, || self.broken(id, broken)),
                Change::Remove(cluster) => {
                    catch_panic(ANNOUNCED, || self.change(|desired| desired.remove(id, &cluster)))
                }
                Change::Synced => {
                    // Each cluster joins in a task of its own. When discovery is complete, all of them are in the fleet.
                    self.supervisors.starting.wait().await;
                    catch_panic(ANNOUNCED, || self.synced(id))
                }
            };
            if let Err(panicked) = taken {
                return panicked.to_string();
            }
            self.sweep_changed.notify_one();
        }
    }

    fn broken(self: &Arc<Self>, id: ProviderId, broken: BrokenCluster) {
        let name = &self.providers[id].name;
        let known = self
            .desired()
            .broken_of(&broken.name)
            .is_some_and(|known| known.error == broken.error);
        if !known {
            tracing::warn!(provider = %name, cluster = %broken.name, object = %broken.object, error = %broken.error, "the description of a cluster can't be used");
        }
        self.change(|desired| desired.broken(id, broken));
    }

    fn synced(self: &Arc<Self>, id: ProviderId) {
        self.providers[id].status.change(|status| status.synced = true);
        let grace = self.fleet().settings().removal_grace;
        self.change(|desired| desired.synced(id, Instant::now(), grace));
    }

    /// Changes the table of claims and applies the effects, as one step: no other change comes between the two.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Desired) -> Vec<Effect>) {
        let _change = self.change.lock();
        // This call itself removes clusters in scopes and moves them to other scope endpoints. Both need a tokio
        // runtime, and the thread of the caller may have none.
        let _entered = self.fleet().resources.enter_runtime();
        let effects = change(&mut self.desired());
        // Without the lock of the table: this waits for sinks, and a sink may look up a cluster.
        self.apply(effects);
    }

    /// Removes the clusters whose grace period is over, until the fleet stops.
    pub(crate) async fn run_sweeper(self: Arc<Self>) {
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
                    if let Err(error) = catch_panic(ANNOUNCED, sweep) {
                        tracing::error!(%error, "removing a cluster panicked, so the cluster may stay in the fleet");
                    }
                }
                () = self.sweep_changed.notified() => {}
                () = self.token().cancelled() => return,
            }
        }
    }

    fn apply(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Set(provider, spec) => {
                    let provider = self.providers[provider].name.clone();
                    self.supervisors.set(provider, spec);
                }
                Effect::Unset(name) => self.supervisors.unset(&name),
                Effect::Shown(name) => self.fleet().publish(&name),
                Effect::Clash { name, holder, late } => {
                    let (holder, late) = (&self.providers[holder].name, &self.providers[late].name);
                    tracing::error!(cluster = %name, %holder, provider = %late, "two providers announce a cluster of the same name: the first keeps it and the second waits. Put a prefix layer on one of them");
                }
                Effect::Held(provider, HeldClusters { missing, known }) => tracing::error!(
                    provider = %self.providers[provider].name,
                    missing,
                    of = known,
                    "a restarted discovery no longer names most clusters of its provider: none is removed. If they are really gone, call Fleet::release_held"
                ),
            }
        }
    }

    /// Logs why the fleet has no clusters, if it has none after some time. A controller without clusters shows no error
    /// otherwise.
    pub(crate) async fn warn_if_empty(self: Arc<Self>) {
        const PATIENCE: Duration = Duration::from_secs(10);
        tokio::select! {
            () = sleep(PATIENCE) => {}
            () = self.token().cancelled() => return,
        }
        if self.fleet().registry.len() > 0 {
            return;
        }
        let broken = self.desired().never_good().count();
        for provider in &self.providers {
            let status = provider.status();
            let state = match (&status.last_error, status.synced) {
                (Some(error), _) => format!("its discovery fails: {error}"),
                (None, true) => "it has found none".to_owned(),
                (None, false) => "it has not finished looking".to_owned(),
            };
            let searched = catch_panic(DISCOVERY, || provider.provider.searched()).unwrap_or_default();
            let searched = (!searched.is_empty()).then(|| tracing::field::display(searched));
            tracing::warn!(provider = %provider.name, %state, searched, broken, "the fleet has no clusters after {} s", PATIENCE.as_secs());
        }
    }
}

/// A provider whose discovery the fleet runs.
pub(crate) struct RunningProvider {
    pub(crate) name: Arc<str>,
    provider: Arc<dyn Provider>,
    pub(crate) status: Observable<ProviderStatus>,
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
            }),
            name,
            provider,
        }
    }

    pub(crate) fn status(&self) -> ProviderStatus {
        self.status.read(Clone::clone)
    }
}
