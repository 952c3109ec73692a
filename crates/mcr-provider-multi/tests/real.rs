//! Children over real API servers, with a manager and controllers. The animals are those of upstream's tests, and the
//! tests are named after its cases.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use mcr::{
    Action, BuildError, BuiltController, ClusterSelector, Controller, Fleet, Manager, ManagerError, Request,
};
use mcr_core::{Access, ClusterName, ClusterSpec, Discovery, Provider, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::{ChildState, MultiHandle, MultiProvider};
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd},
    waiting::{Answer, Background, OrFail},
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(90);
const FED: &str = "food";

async fn planes<const N: usize>() -> [ControlPlane; N] {
    let etcd = Etcd::start().await.or_fail();
    let starting = (0..N).map(|_| ControlPlane::builder().etcd(&etcd).start());
    let planes: Vec<_> = futures::future::join_all(starting).await;
    let planes: Vec<ControlPlane> = planes.into_iter().map(OrFail::or_fail).collect();
    let Ok(planes) = planes.try_into() else {
        panic!("{N} planes were asked for")
    };
    planes
}

fn spec(name: &str, plane: &ControlPlane) -> ClusterSpec {
    let access = Access::kubeconfig(plane.kubeconfig(), Trust::Trusted);
    ClusterSpec::new(ClusterName::new(name).or_fail(), access)
}

fn cloud<'a>(clusters: impl IntoIterator<Item = (&'a str, &'a ControlPlane)>) -> ClustersProvider {
    let builder = ClustersProvider::builder();
    let clusters = clusters.into_iter().map(|(name, plane)| spec(name, plane));
    clusters
        .fold(builder, |builder, spec| builder.cluster(spec))
        .build()
}

fn animals(plane: &ControlPlane) -> kube::Api<ConfigMap> {
    kube::Api::namespaced(plane.client(), "default")
}

/// Creates a hungry animal.
async fn create(plane: &ControlPlane, name: &str, kind: &str) {
    let animal = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(BTreeMap::from([("type".into(), kind.into())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    animals(plane)
        .create(&PostParams::default(), &animal)
        .await
        .or_fail();
}

async fn stomach(plane: &ControlPlane, name: &str, content: Option<&str>) {
    let patch = Patch::Merge(serde_json::json!({"data": {"stomach": content}}));
    animals(plane)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .or_fail();
}

async fn is_fed(plane: &ControlPlane, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let animal = animals(plane).get(name).await.or_fail();
        if animal
            .data
            .is_some_and(|data| data.get("stomach").is_some_and(|food| food == FED))
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{name} is still hungry after {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes down `<cluster> <object>` for every meal and every look at an animal.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn has(&self, line: &str) -> bool {
        self.0.lock().unwrap().iter().any(|known| known == line)
    }

    fn clusters(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let mut clusters: Vec<String> = lines
            .iter()
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .collect();
        clusters.sort();
        clusters.dedup();
        clusters
    }
}

/// Fills empty stomachs.
async fn feed(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    let line = format!("{} {}", request.cluster.name(), request.name());
    seen.0.lock().unwrap().push(line);
    let Some(animal) = request.live() else {
        return Ok(Action::await_change());
    };
    let food = animal.data.as_ref().and_then(|data| data.get("stomach"));
    if food.is_none_or(|food| food != FED) {
        let patch = Patch::Merge(serde_json::json!({"data": {"stomach": FED}}));
        let animals = request.cluster.namespaced::<ConfigMap>("default");
        animals
            .patch(request.name(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

fn keeper(name: &str, clusters: ClusterSelector, seen: &Arc<Seen>) -> Result<BuiltController, BuildError> {
    Controller::<ConfigMap>::new(name)
        .clusters(clusters)
        .watch_request(|watch| watch.namespace("default").labels("type"))
        .build(feed, seen.clone())
}

struct Running {
    fleet: Fleet,
    children: MultiHandle,
    running: Background<Result<(), ManagerError>>,
}

impl Running {
    fn start(
        multi: MultiProvider,
        controllers: impl IntoIterator<Item = Result<BuiltController, BuildError>>,
    ) -> Self {
        let children = multi.handle();
        // Several children announce the same API servers.
        let mut builder = Manager::builder()
            .provider(multi)
            .settings(|settings| settings.allow_duplicates = true);
        for controller in controllers {
            builder = builder.controller(controller);
        }
        let manager = builder.build().or_fail();
        let fleet = manager.fleet().clone();
        // Once, before any cluster is there.
        fleet.index::<ConfigMap>("type", |animal| {
            let labels = animal.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get("type"))
                .cloned()
                .into_iter()
                .collect()
        });
        Self {
            fleet,
            children,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    fn names(&self) -> Vec<String> {
        self.fleet
            .clusters()
            .iter()
            .map(|c| c.name().to_string())
            .collect()
    }

    /// The names of all humans in a cluster, once it is listed.
    async fn humans(&self, cluster: &str) -> Vec<String> {
        let cluster = eventually(cluster, || self.fleet.get(cluster).ok()).await;
        let store = eventually("the animals are watched", || cluster.store::<ConfigMap>().ok()).await;
        store.wait_synced(PATIENCE).await.or_fail();
        let humans = store.by_index("type", "human").or_fail();
        humans
            .iter()
            .filter_map(|human| human.metadata.name.clone())
            .collect()
    }

    async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}

#[track_caller]
fn eventually<A: Answer>(what: &str, ask: impl FnMut() -> A) -> impl Future<Output = A::Value> {
    mcr_testkit::waiting::eventually(PATIENCE, what, ask)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_27_to_31_animals_are_fed_and_an_index_finds_humans_in_a_cloud_added_later_too() {
    let [zoo, island, other_island] = planes().await;
    create(&zoo, "elephant", "animal").await;
    create(&island, "crusoe", "human").await;
    create(&island, "parrot", "animal").await;
    create(&other_island, "selkirk", "human").await;
    create(&other_island, "goat", "animal").await;

    let seen = Arc::new(Seen::default());
    let multi = MultiProvider::builder()
        .child_as("cloud1", cloud([("zoo", &zoo), ("island", &island)]))
        .build()
        .or_fail();
    let running = Running::start(multi, [keeper("keeper", ClusterSelector::all(), &seen)]);

    // P-27: existing.
    is_fed(&zoo, "elephant").await;
    assert!(seen.has("cloud1#zoo elephant"));
    // P-28: new.
    create(&zoo, "lion", "animal").await;
    is_fed(&zoo, "lion").await;
    // P-29: updated, through the cluster's client.
    let cluster = running.fleet.get("cloud1#zoo").or_fail();
    assert_eq!(cluster.provider(), "cloud1");
    let patch = Patch::Merge(serde_json::json!({"data": {"stomach": null}}));
    let animals = cluster.namespaced::<ConfigMap>("default");
    animals
        .patch("lion", &PatchParams::default(), &patch)
        .await
        .or_fail();
    is_fed(&zoo, "lion").await;
    // P-30: the index, registered before the start.
    assert_eq!(running.humans("cloud1#island").await, ["crusoe"]);

    // P-31: in a child that is added while all runs; and nobody registers the index again.
    assert_eq!(running.names(), ["cloud1#island", "cloud1#zoo"]);
    running
        .children
        .add_as("cloud2", cloud([("island", &other_island)]))
        .or_fail();
    assert_eq!(running.humans("cloud2#island").await, ["selkirk"]);
    assert_eq!(running.humans("cloud1#island").await, ["crusoe"]);
    is_fed(&other_island, "goat").await;
    assert_eq!(running.names(), ["cloud1#island", "cloud1#zoo", "cloud2#island"]);
    running.stop().await;
}

/// Says what another provider says until it is switched off, and fails from then on until it is switched on.
#[derive(Clone)]
struct Switched {
    provider: ClustersProvider,
    off: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl Switched {
    fn switch(&self, off: bool) {
        self.off.store(off, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Provider for Switched {
    fn name(&self) -> &str {
        "switched"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let failed = stream::iter([Err("the hub is away".into())]);
        if self.off.load(Ordering::SeqCst) {
            return failed.boxed();
        }
        let off = self.changed.clone().notified_owned();
        self.provider.discover(stop).take_until(off).chain(failed).boxed()
    }
}

/// One child fails for a while, another is removed, and a controller is for one child only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_fails_beside_two_healthy_ones_loses_nothing_and_disturbs_nobody() {
    let [left, right, middle] = planes().await;
    for plane in [&left, &right, &middle] {
        create(plane, "first", "animal").await;
    }
    let sick = Switched {
        provider: cloud([("middle", &middle)]),
        off: Arc::default(),
        changed: Arc::default(),
    };
    // One that the child no longer names when it is back, so that it is seen when the grace is over.
    sick.provider.handle().add(spec("lost", &middle));
    let lefts = cloud([("left", &left)]);
    let multi = MultiProvider::builder()
        .child_as("a", lefts.clone())
        .child_as("b", cloud([("right", &right)]))
        .child_as("sick", sick.clone())
        .removal_grace(Duration::from_secs(1))
        .build()
        .or_fail();
    let (all, of_b) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let running = Running::start(
        multi,
        [
            keeper("all", ClusterSelector::all(), &all),
            keeper("of-b", ClusterSelector::provider("b"), &of_b),
        ],
    );
    for plane in [&left, &right, &middle] {
        is_fed(plane, "first").await;
    }
    eventually("the lost one is looked at", || all.has("sick#lost first")).await;
    let mut before = running.fleet.clusters();
    before.retain(|cluster| cluster.name() != "sick#lost");
    assert_eq!(before.len(), 3);

    sick.switch(true);
    let status = || running.children.status("sick").unwrap();
    eventually("the child fails again and again", || status().restarts >= 2).await;
    assert!(matches!(status().state, ChildState::Failing { error, .. } if &*error == "the hub is away"));
    // Its cluster goes on, and so do the others.
    for plane in [&left, &right, &middle] {
        create(plane, "second", "animal").await;
        is_fed(plane, "second").await;
    }
    lefts.handle().add(spec("new", &left));
    eventually("a healthy child is heard meanwhile", || {
        running.fleet.get("a#new").ok()
    })
    .await;
    sick.provider.handle().remove(&ClusterName::new("lost").or_fail());
    assert!(running.fleet.get("sick#lost").is_ok());
    sick.switch(false);
    eventually("the child recovers", || status().state == ChildState::Running).await;
    eventually("what it no longer names goes after the grace", || {
        running.fleet.get("sick#lost").is_err()
    })
    .await;
    for cluster in before {
        let same = running.fleet.get(cluster.name()).or_fail();
        assert!(same.is_same(&cluster), "{} was engaged anew", cluster.name());
    }

    // Removed while it is failing, and its cluster with it.
    sick.switch(true);
    eventually("the child fails", || status().state != ChildState::Running).await;
    assert!(running.children.remove("sick"));
    eventually("its cluster leaves", || running.fleet.get("sick#middle").is_err()).await;
    assert_eq!(running.names(), ["a#left", "a#new", "b#right"]);
    // And back, under the same name.
    sick.switch(false);
    running.children.add_as("sick", sick).or_fail();
    stomach(&middle, "second", None).await;
    is_fed(&middle, "second").await;

    let expected = ["a#left", "a#new", "b#right", "sick#lost", "sick#middle"];
    eventually("a new cluster is looked at", || all.clusters() == expected).await;
    assert_eq!(
        of_b.clusters(),
        ["b#right"],
        "a controller of one child sees that child"
    );
    running.stop().await;
}
