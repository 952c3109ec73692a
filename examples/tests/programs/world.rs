//! A hub and two members, `eu` and `us`, each a simulated API server behind a proxy that can fail.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use mcr::{
    ClusterName, ClusterSpec, Fleet, HUB, KubeconfigAccess, ManagerBuilder, ManagerError, Provider, Trust,
    core::Discovery,
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

/// The limit of waits that succeed. A condition of another cluster must not slow a cluster down to it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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
    async fn start(name: &str) -> Self {
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

    pub(crate) fn run(&self, manager: ManagerBuilder) -> Background<Result<(), ManagerError>> {
        let manager = manager.fleet(self.fleet.clone()).build().unwrap();
        Background::start(|stop| manager.run_until(stop))
    }
}
