//! A fleet of clusters, simulated or real, some of them behind proxies that fail, under one controller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr::{
    Action, BuildError, BuiltController, Cluster, ClusterName, ClusterSpec, Controller, ControllerHandle,
    Fleet, FleetReport, FleetSettings, Manager, Request,
    core::{Access, TransportSettings, Trust, WatchSettings},
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
pub(crate) use mcr_testkit::waiting::OrFail;
use mcr_testkit::{
    control_plane::{ControlPlane, Credentials, KubeconfigBuilder, policy_rule},
    faults::{FaultProxy, Rule},
    sim::{SimCluster, SimFleet, SimServer},
    waiting::Background,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex as AsyncMutex, MutexGuard},
    time::Instant,
};

/// What measures time must not run beside another that does: each test holds this while it runs.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: AsyncMutex<()> = AsyncMutex::const_new(());
    ONE_AT_A_TIME.lock().await
}

/// Clusters that are well, and clusters that may fall sick, each behind a proxy of its own.
pub(crate) struct World {
    pub(crate) healthy: Vec<Member>,
    /// Join while the others run.
    pub(crate) late: Vec<Member>,
    pub(crate) sick: Vec<Sick>,
    pub(crate) servers: Servers,
}

pub(crate) struct Member {
    pub(crate) name: String,
    kubeconfig: String,
}

pub(crate) struct Sick {
    pub(crate) name: String,
    pub(crate) proxy: FaultProxy,
    token: String,
}

/// What is behind the clusters.
pub(crate) enum Servers {
    /// A simulated API server for each.
    Simulated {
        /// Of the healthy clusters, in their order.
        healthy: Vec<SimCluster>,
        _front: SimFleet,
        _behind: Vec<SimServer>,
    },
    /// One real API server for all: each is a context with a token, and so with connections, of its own.
    Real(ControlPlane),
}

impl World {
    /// Simulated: the healthy ones behind one port.
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
        let (mut sick_ones, mut behind) = (Vec::new(), Vec::new());
        for i in 0..sick {
            let cluster = cluster(format!("sick-{i}"));
            let server = cluster.serve().await.or_fail();
            sick_ones.push(Sick {
                name: cluster.name().to_owned(),
                proxy: FaultProxy::start(&server).await.or_fail(),
                token: cluster.admin_token(),
            });
            behind.push(server);
        }
        let member = |cluster: &SimCluster| Member {
            name: cluster.name().to_owned(),
            kubeconfig: front.kubeconfig(cluster.name()).expect("it is served"),
        };
        Self {
            healthy: healthy.iter().map(member).collect(),
            late: late.iter().map(member).collect(),
            sick: sick_ones,
            servers: Servers::Simulated {
                healthy,
                _front: front,
                _behind: behind,
            },
        }
    }

    /// Contexts of one real API server.
    pub(crate) async fn real(healthy: usize, late: usize, sick: usize) -> Self {
        let plane = ControlPlane::start().await.or_fail();
        let robot = plane
            .service_account("default", "robot")
            .cluster_rules([
                policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
                policy_rule([""], ["namespaces"], ["get"]),
            ])
            .create()
            .await
            .or_fail();
        write_really(&plane, "hello", 0).await;
        let (mut well, mut sick_ones) = (Vec::new(), Vec::new());
        let names = (0..healthy).map(|i| format!("healthy-{i}"));
        for name in names.chain((0..late).map(|i| format!("late-{i}"))) {
            let token = Credentials::Token(robot.token().await.or_fail());
            let kubeconfig = KubeconfigBuilder::new()
                .context(&name, plane.url(), plane.ca_pem(), token)
                .to_yaml();
            well.push(Member { name, kubeconfig });
        }
        for i in 0..sick {
            sick_ones.push(Sick {
                name: format!("sick-{i}"),
                proxy: FaultProxy::start(&plane).await.or_fail(),
                token: robot.token().await.or_fail(),
            });
        }
        Self {
            late: well.split_off(healthy),
            healthy: well,
            sick: sick_ones,
            servers: Servers::Real(plane),
        }
    }

    /// One fault for each sick cluster, in turn.
    pub(crate) async fn infect(&self, faults: &[Rule]) {
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
        Running::start(self.specs(), noting, |_| {})
    }

    /// All clusters but the late ones.
    pub(crate) fn specs(&self) -> impl Iterator<Item = ClusterSpec> {
        // The sick ones come first: nobody may wait for them.
        let sick = self
            .sick
            .iter()
            .map(|sick| spec(&sick.name, &sick.proxy.kubeconfig_with_token(&sick.token)));
        let healthy = self
            .healthy
            .iter()
            .map(|member| spec(&member.name, &member.kubeconfig));
        sick.chain(healthy)
    }

    pub(crate) fn join(&self, running: &Running, member: &Member) {
        running.clusters.add(spec(&member.name, &member.kubeconfig));
    }

    /// How long writes take to be reconciled in each of the healthy clusters. All values are `values..values + 5`.
    pub(crate) async fn latencies(&self, running: &Running, values: usize) -> Vec<Duration> {
        let mut latencies = Vec::new();
        for value in values..values + 5 {
            match &self.servers {
                Servers::Simulated { healthy, .. } => {
                    for cluster in healthy {
                        let written = Instant::now();
                        write(cluster, "probe", value);
                        let when = running.reconciled(cluster.name(), "probe", value, PATIENCE).await;
                        latencies.push(when.saturating_duration_since(written));
                    }
                }
                // One write, which all of them see.
                Servers::Real(plane) => {
                    let written = Instant::now();
                    write_really(plane, "probe", value).await;
                    for member in &self.healthy {
                        let when = running.reconciled(&member.name, "probe", value, PATIENCE).await;
                        latencies.push(when.saturating_duration_since(written));
                    }
                }
            }
        }
        latencies.sort();
        latencies
    }
}

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What a fleet waits for at most, shortened from half a minute to some seconds.
pub(crate) fn hasty(settings: &mut FleetSettings) {
    let mut transport = TransportSettings::default();
    transport.connect_timeout = Duration::from_secs(2);
    transport.rotation_spread = Duration::from_secs(1);
    settings.transport = transport.into();
    let mut watch = WatchSettings::default();
    watch.retry_cap = Duration::from_secs(1);
    settings.watch = watch.into();
    settings.reconnect_cap = Duration::from_secs(1);
    settings.probe_after = Duration::from_secs(3);
    settings.probe_timeout = Duration::from_secs(3);
}

/// Compares figures that are measured in two ways, turn by turn, until those of the second way stay within 1.25 times, or 10 ms
/// more, of those of the first. What else the machine does only adds to a figure, so of each the least of some turns counts;
/// what slows each turn of the second way is in its least, too. Only the last turns count: one that the machine was idle for
/// stands for nothing that is measured long after it.
pub(crate) async fn compare<const N: usize>(
    names: [&str; N],
    mut measure: impl AsyncFnMut(bool) -> [Duration; N],
) {
    const FEWEST: usize = 2;
    const MOST: usize = 12;
    const LAST: usize = 4;
    let mut turns = [[[Duration::MAX; N]; LAST]; 2];
    for turn in 1..=MOST {
        // The same one is not always first.
        for second in [turn % 2 == 0, turn % 2 == 1] {
            turns[usize::from(second)][turn % LAST] = measure(second).await;
        }
        let mut slower = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let [without, with] = turns.map(|last| {
                last.map(|measured| measured[i])
                    .into_iter()
                    .min()
                    .unwrap_or_default()
            });
            println!("turn {turn}, {name}: {without:?} without, {with:?} with");
            if with > without.mul_f64(1.25).max(without + Duration::from_millis(10)) {
                slower.push(format!("{name}: {with:?} instead of {without:?}"));
            }
        }
        if turn >= FEWEST && slower.is_empty() {
            return;
        }
        assert!(turn < MOST, "after {MOST} turns: {}", slower.join("; "));
    }
}

pub(crate) fn spec(name: &str, kubeconfig: &str) -> ClusterSpec {
    ClusterSpec::new(
        ClusterName::new(name).or_fail(),
        Access::kubeconfig(kubeconfig, Trust::Trusted),
    )
}

pub(crate) fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

pub(crate) fn config_map(name: &str, value: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"value": value.to_string()},
    })
}

pub(crate) async fn write_really(plane: &ControlPlane, name: &str, value: usize) {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let apply = PatchParams::apply("test").force();
    let object = Patch::Apply(config_map(name, value));
    maps.patch(name, &apply, &object).await.or_fail();
}

/// Writes a ConfigMap behind the back of the HTTP front.
pub(crate) fn write(cluster: &SimCluster, name: &str, value: usize) {
    cluster.apply(config_map(name, value)).or_fail();
}

/// When each object was reconciled in which state.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<String, Instant>>);

impl Seen {
    /// Notes the object of a request, if this is the first time that it is seen with this value.
    pub(crate) fn note(&self, request: &Request<ConfigMap>) {
        let Some(map) = request.live() else { return };
        let value = map.data.as_ref().and_then(|data| data.get("value"));
        let value = value.map_or("", |value| value);
        self.note_as(&request.cluster, request.name(), value);
    }

    /// Notes an object of any kind.
    pub(crate) fn note_as(&self, cluster: &Cluster, name: &str, value: &str) {
        let key = format!("{} {name} {value}", cluster.name());
        self.0.lock().unwrap().entry(key).or_insert_with(Instant::now);
    }
}

/// A controller that notes what it sees.
pub(crate) fn noting(seen: Arc<Seen>) -> Result<BuiltController, BuildError> {
    Controller::<ConfigMap>::new("noting")
        .watch_request(|watch| watch.namespace("default"))
        .build(note, seen)
}

async fn note(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, std::convert::Infallible> {
    seen.note(&request);
    Ok(Action::await_change())
}

pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) clusters: ClustersHandle,
    pub(crate) controllers: Vec<ControllerHandle>,
    seen: Arc<Seen>,
    running: Background<Result<(), mcr::ManagerError>>,
}

impl Running {
    /// A controller over these clusters.
    pub(crate) fn start(
        specs: impl IntoIterator<Item = ClusterSpec>,
        controller: impl FnOnce(Arc<Seen>) -> Result<BuiltController, BuildError>,
        settings: impl FnOnce(&mut FleetSettings),
    ) -> Self {
        let provider = ClustersProvider::new();
        let clusters = provider.handle();
        for spec in specs {
            clusters.add(spec);
        }
        let seen = Arc::new(Seen::default());
        let manager = Manager::builder()
            .provider(provider)
            .settings(|chosen| {
                // Contexts of one real API server.
                chosen.allow_duplicates = true;
                settings(chosen);
            })
            .controller(controller(seen.clone()))
            .build()
            .or_fail();
        let (fleet, controllers) = (manager.fleet().clone(), manager.controllers());
        Self {
            fleet,
            clusters,
            controllers,
            seen,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    /// All that can be asked of a fleet, as text: for people and for programs.
    pub(crate) fn all_reports(&self) -> String {
        let report = FleetReport::of(&self.fleet, &self.controllers);
        let (fleet, snapshot) = (&self.fleet, self.fleet.snapshot());
        format!(
            "{report:?} {fleet:?} {snapshot:?} {:?} {}",
            self.fleet.clusters(),
            serde_json::to_string(&report).or_fail()
        )
    }

    pub(crate) fn when(&self, cluster: &str, name: &str, value: usize) -> Option<Instant> {
        self.when_as(cluster, name, &value.to_string())
    }

    fn when_as(&self, cluster: &str, name: &str, value: &str) -> Option<Instant> {
        let key = format!("{cluster} {name} {value}");
        self.seen.0.lock().unwrap().get(&key).copied()
    }

    /// Waits until an object is reconciled. Returns when it was.
    pub(crate) async fn reconciled(
        &self,
        cluster: &str,
        name: &str,
        value: usize,
        limit: Duration,
    ) -> Instant {
        self.reconciled_as(cluster, name, &value.to_string(), limit).await
    }

    /// As [`reconciled`](Self::reconciled), for what was noted by [`Seen::note_as`].
    pub(crate) async fn reconciled_as(
        &self,
        cluster: &str,
        name: &str,
        value: &str,
        limit: Duration,
    ) -> Instant {
        let started = Instant::now();
        loop {
            if let Some(when) = self.when_as(cluster, name, value) {
                return when;
            }
            assert!(
                started.elapsed() < limit,
                "{name} {value} of {cluster} is not reconciled within {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}
