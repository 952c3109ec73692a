//! A hub and two members, `eu` and `us`, each a simulated API server behind a proxy that can fail.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use mcr::{
    ClusterName, ClusterSpec, ControllerClusterStatus, ControllerHandle, Fleet, HUB, KubeconfigAccess,
    ManagerBuilder, ManagerError, Provider, Trust, core::Discovery,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_provider_single::SingleProvider;
use mcr_testkit::{
    faults::{Fault, FaultProxy, Match},
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::{Background, eventually},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// The limit of waits that succeed. It is below the time limits of the programs and of their clients, so that no cluster may wait
/// for another one to run into them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Place {
    pub(crate) cluster: SimCluster,
    pub(crate) proxy: FaultProxy,
    kubeconfig: String,
    _server: SimServer,
}

pub(crate) struct World {
    pub(crate) hub: Place,
    pub(crate) eu: Place,
    pub(crate) us: Place,
    pub(crate) fleet: Fleet,
    clusters: ClustersHandle,
    discover: CancellationToken,
}

/// A provider that announces nothing until its token is cancelled.
struct Late {
    inner: ClustersProvider,
    until: CancellationToken,
}

impl Provider for Late {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let (until, inner) = (self.until.clone(), self.inner.discover(stop.clone()));
        let late = async move {
            stop.run_until_cancelled(until.cancelled()).await;
            inner
        };
        late.flatten_stream().boxed()
    }
}

impl Place {
    pub(crate) async fn start(name: &str) -> Self {
        let cluster = SimCluster::builder().name(name).finish_namespaces(true).build();
        let server = cluster.serve().await.unwrap();
        let proxy = FaultProxy::start(&server).await.unwrap();
        let place = Self {
            kubeconfig: proxy.kubeconfig_with_token("program"),
            cluster,
            proxy,
            _server: server,
        };
        place.rights([SimRule::all()]);
        place
    }

    /// Replaces the rights of the program in this cluster.
    pub(crate) fn rights(&self, rules: impl IntoIterator<Item = SimRule>) {
        let user = rules.into_iter().fold(SimUser::new("program"), SimUser::rule);
        self.cluster.set_user("program", user);
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<Value> {
        self.cluster.get(resource, key)
    }

    pub(crate) fn put(&self, object: Value) {
        self.cluster.apply(object).unwrap();
    }

    /// Answers requests for this kind late.
    pub(crate) async fn slow(&self, resource: &str) {
        let late = Fault::Slow {
            first_byte: Duration::from_millis(700),
            bytes_per_second: None,
        };
        self.proxy.set(late.on(Match::any().resource(resource))).await;
    }

    /// Waits for what a state of the cluster has.
    pub(crate) async fn has<T>(&self, what: &str, wanted: impl Fn(&SimCluster) -> Option<T>) -> T {
        eventually(PATIENCE, what, || wanted(&self.cluster)).await
    }

    /// Waits until an object is not there.
    pub(crate) async fn loses(&self, resource: &str, key: &str) {
        self.has(&format!("no {resource} {key}"), |cluster| {
            cluster.get(resource, key).is_none().then_some(())
        })
        .await;
    }
}

impl World {
    /// A world whose members are known at once.
    pub(crate) async fn start() -> Self {
        let world = Self::start_undiscovered().await;
        world.discover();
        world
    }

    /// A world whose provider announces no member until [`discover`](Self::discover).
    pub(crate) async fn start_undiscovered() -> Self {
        let (hub, eu, us) = tokio::join!(Place::start(HUB), Place::start("eu"), Place::start("us"));
        let (members, discover) = (ClustersProvider::new(), CancellationToken::new());
        let clusters = members.handle();
        let access = KubeconfigAccess::new(&hub.kubeconfig, Trust::Trusted);
        let fleet = Fleet::builder()
            .provider(SingleProvider::named(HUB, access).unwrap())
            .provider(Late {
                inner: members,
                until: discover.clone(),
            })
            .settings(|settings| {
                Arc::make_mut(&mut settings.watch).retry_cap = Duration::from_millis(300);
                settings.probe_after = Duration::from_millis(300);
                settings.probe_timeout = Duration::from_millis(300);
                settings.reconnect_cap = Duration::from_millis(300);
                settings.drain_grace = Duration::from_millis(300);
            })
            .build();
        let world = Self {
            hub,
            eu,
            us,
            fleet,
            clusters,
            discover,
        };
        for place in [&world.eu, &world.us] {
            world.label(place, "prod");
        }
        world
    }

    pub(crate) fn discover(&self) {
        self.discover.cancel();
    }

    /// Announces a cluster with the label `tier`.
    pub(crate) fn label(&self, place: &Place, tier: &str) {
        let name = ClusterName::new(place.cluster.name()).unwrap();
        let access = KubeconfigAccess::new(&place.kubeconfig, Trust::Trusted);
        self.clusters
            .add(ClusterSpec::new(name, access.into()).label("tier", tier));
    }

    /// Announces a cluster without labels.
    pub(crate) fn unlabel(&self, place: &Place) {
        let name = ClusterName::new(place.cluster.name()).unwrap();
        let access = KubeconfigAccess::new(&place.kubeconfig, Trust::Trusted);
        self.clusters.add(ClusterSpec::new(name, access.into()));
    }

    /// Waits until a cluster of the fleet has a kind that it refuses to list.
    pub(crate) async fn blocked(&self, place: &Place) {
        let name = place.cluster.name();
        let blocked = || {
            let clusters = self.fleet.snapshot().clusters;
            let mut found = clusters.iter().filter(|cluster| cluster.name == *name);
            found.any(|cluster| cluster.kinds_blocked > 0).then_some(())
        };
        eventually(PATIENCE, &format!("{name} has a blocked kind"), blocked).await;
    }

    pub(crate) fn run(&self, manager: ManagerBuilder) -> Running {
        let manager = manager.fleet(self.fleet.clone()).build().unwrap();
        Running {
            controllers: manager.controllers(),
            background: Background::start(|stop| manager.run_until(stop)),
        }
    }
}

/// A program that runs.
pub(crate) struct Running {
    controllers: Vec<ControllerHandle>,
    background: Background<Result<(), ManagerError>>,
}

impl Running {
    /// The number of reconciles that returned an error.
    pub(crate) fn errors(&self) -> u64 {
        let counts = self
            .controllers
            .iter()
            .map(|controller| controller.status().counts);
        counts.map(|counts| counts.errors).sum()
    }

    /// Waits until so many reconciles have ended without an error.
    pub(crate) async fn succeeds(&self, times: u64) {
        let controller = self.controllers.first().unwrap();
        let has = || (controller.status().counts.successes >= times).then_some(());
        eventually(PATIENCE, &format!("{times} successful reconciles"), has).await;
    }

    /// Waits for a state of a cluster in the controller.
    async fn has(&self, place: &Place, what: &str, wanted: impl Fn(&ControllerClusterStatus) -> bool) {
        let name = place.cluster.name();
        let controller = self.controllers.first().unwrap();
        let has = || {
            let status = controller.status();
            wanted(status.clusters.get(name)?).then_some(())
        };
        eventually(PATIENCE, &format!("{name} has {what}"), has).await;
    }

    /// Waits until no request of a cluster fails.
    pub(crate) async fn recovers(&self, place: &Place) {
        self.has(place, "no failing request", |status| status.failing_count == 0)
            .await;
    }

    pub(crate) async fn stop(self) {
        self.background.stop().await.unwrap();
    }
}
