//! A fleet of simulated clusters, some of them behind proxies that fail, under one controller.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, ClusterName, ClusterSpec, Controller, Fleet, Manager, Request, core::Access, core::Trust};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_testkit::{
    faults::{Fault, FaultProxy, Upstream},
    sim::{SimCluster, SimFleet, SimServer},
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// `unwrap` that shows the text a user would see.
pub(crate) trait OrFail<T> {
    fn or_fail(self) -> T;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_fail(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Clusters that are well, behind one port, and clusters that may fall sick, each behind a proxy of its own.
pub(crate) struct World {
    pub(crate) healthy: Vec<SimCluster>,
    /// Join while the others run.
    pub(crate) late: Vec<SimCluster>,
    pub(crate) sick: Vec<Sick>,
    front: SimFleet,
}

pub(crate) struct Sick {
    pub(crate) name: String,
    pub(crate) proxy: FaultProxy,
    token: String,
    _server: SimServer,
}

impl World {
    pub(crate) async fn new(healthy: usize, late: usize, sick: usize) -> Self {
        let cluster = |name: String| {
            let cluster = SimCluster::builder().name(name).build();
            write(&cluster, "hello", 0);
            cluster
        };
        let healthy: Vec<_> = (0..healthy).map(|i| cluster(format!("healthy-{i}"))).collect();
        let late: Vec<_> = (0..late).map(|i| cluster(format!("late-{i}"))).collect();
        let front = SimFleet::serve(healthy.iter().chain(&late).cloned())
            .await
            .or_fail();
        let mut behind = Vec::new();
        for i in 0..sick {
            let cluster = cluster(format!("sick-{i}"));
            let server = cluster.serve().await.or_fail();
            let upstream = Upstream::new(server.url()).ca_pem(server.ca_pem());
            let proxy = FaultProxy::start(upstream).await.or_fail();
            let token = cluster.admin_token();
            behind.push(Sick {
                name: cluster.name().to_owned(),
                proxy,
                token,
                _server: server,
            });
        }
        Self {
            healthy,
            late,
            sick: behind,
            front,
        }
    }

    /// One fault for each sick cluster, in turn.
    pub(crate) async fn infect(&self, faults: &[Fault]) {
        for (sick, fault) in self.sick.iter().zip(faults.iter().cycle()) {
            sick.proxy.set(fault.clone()).await;
        }
    }

    pub(crate) async fn heal(&self) {
        for sick in &self.sick {
            sick.proxy.clear().await;
        }
    }

    /// Runs a controller over all clusters but the late ones.
    pub(crate) fn run(&self) -> Running {
        let provider = ClustersProvider::new();
        let clusters = provider.handle();
        // The sick ones come first: nobody may wait for them.
        for sick in &self.sick {
            clusters.add(spec(&sick.name, &sick.proxy.kubeconfig_with_token(&sick.token)));
        }
        for cluster in &self.healthy {
            clusters.add(spec(
                cluster.name(),
                &self.front.kubeconfig(cluster.name()).expect("it is served"),
            ));
        }
        let seen = Arc::new(Seen::default());
        let controller = Controller::<ConfigMap>::new("noting")
            .watch_request(|watch| watch.namespace("default"))
            .build(note, seen.clone());
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .or_fail();
        let (fleet, stop) = (manager.fleet().clone(), CancellationToken::new());
        let task = tokio::spawn(manager.run_until(stop.clone()));
        Running {
            fleet,
            clusters,
            seen,
            stop,
            task,
        }
    }

    pub(crate) fn join(&self, running: &Running, cluster: &SimCluster) {
        running.clusters.add(spec(
            cluster.name(),
            &self.front.kubeconfig(cluster.name()).expect("it is served"),
        ));
    }
}

fn spec(name: &str, kubeconfig: &str) -> ClusterSpec {
    ClusterSpec::new(
        ClusterName::new(name).or_fail(),
        Access::kubeconfig(kubeconfig, Trust::Trusted),
    )
}

/// Writes a ConfigMap behind the back of the HTTP front.
pub(crate) fn write(cluster: &SimCluster, name: &str, value: usize) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"value": value.to_string()},
    });
    cluster.apply(object).or_fail();
}

/// When each object was reconciled in which state.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<String, Instant>>);

async fn note(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, std::convert::Infallible> {
    if let Some(map) = request.live() {
        let value = map
            .data
            .as_ref()
            .and_then(|data| data.get("value"))
            .cloned()
            .unwrap_or_default();
        let key = format!("{} {} {value}", request.cluster.name(), request.name());
        seen.0.lock().unwrap().entry(key).or_insert_with(Instant::now);
    }
    Ok(Action::await_change())
}

pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    clusters: ClustersHandle,
    seen: Arc<Seen>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), mcr::ManagerError>>,
}

impl Running {
    pub(crate) fn when(&self, cluster: &str, name: &str, value: usize) -> Option<Instant> {
        self.seen
            .0
            .lock()
            .unwrap()
            .get(&format!("{cluster} {name} {value}"))
            .copied()
    }

    /// Waits until an object is reconciled, and says when it was.
    pub(crate) async fn reconciled(
        &self,
        cluster: &str,
        name: &str,
        value: usize,
        limit: Duration,
    ) -> Instant {
        let started = Instant::now();
        loop {
            if let Some(when) = self.when(cluster, name, value) {
                return when;
            }
            assert!(
                started.elapsed() < limit,
                "{name}={value} of {cluster} is not reconciled within {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.task)
            .await
            .expect("it stops")
            .or_fail()
            .or_fail();
    }
}
