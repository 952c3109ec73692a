//! A hub with Secrets and the clusters they lead to, all of them real API servers. The animals are those of
//! upstream's tests, and tests are named after its cases. At the hub the provider has the rights that the README names, and no
//! others.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    events::v1::Event,
    rbac::v1::Role,
};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcr::{Action, Cluster, Controller, Fleet, Manager, ManagerError, Request};
use mcr_core::{ClusterState, Provider, TransportSettings};
use mcr_provider_kubeconfig::{KubeconfigProvider, KubeconfigProviderBuilder};
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{
    control_plane::{AuditLog, ControlPlane, Etcd, User},
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};
use support::{loopback_policy, role, secret};
use tokio::time::sleep;

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(90);

async fn planes<const N: usize>(etcd: &Etcd) -> [ControlPlane; N] {
    let starting = (0..N).map(|_| ControlPlane::builder().etcd(etcd).audit(true).start());
    let planes: Vec<_> = futures::future::join_all(starting).await;
    let planes: Vec<ControlPlane> = planes.into_iter().map(OrFail::or_fail).collect();
    planes
        .try_into()
        .unwrap_or_else(|_| panic!("{N} planes were asked for"))
}

/// The cluster that has the Secrets, in the namespace `default`.
struct Hub {
    plane: ControlPlane,
    /// The provider acts as this user.
    robot: User,
    secrets: Api<Secret>,
}

impl Hub {
    async fn new(plane: ControlPlane) -> Self {
        let role: Role = serde_saphyr::from_str(role()).or_fail();
        let robot = plane.user("robot").rules_in("default", role.rules.unwrap());
        Self {
            robot: robot.create().await.or_fail(),
            secrets: Api::namespaced(plane.client(), "default"),
            plane,
        }
    }

    async fn provider(&self) -> KubeconfigProviderBuilder {
        KubeconfigProvider::builder()
            .client(self.robot.client().await.or_fail())
            .namespace("default")
    }

    /// Creates a Secret, or replaces what it has.
    async fn put(&self, name: &str, kubeconfig: impl AsRef<str>) {
        let (params, secret) = (
            PatchParams::apply("test").force(),
            secret("default", name, kubeconfig.as_ref()),
        );
        self.secrets
            .patch(name, &params, &Patch::Apply(secret))
            .await
            .or_fail();
    }

    async fn annotate(&self, name: &str, annotation: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        self.secrets
            .patch(name, &PatchParams::default(), &patch)
            .await
            .or_fail();
    }

    /// Waits until a Secret has events with these reasons.
    async fn events_are(&self, secret: &str, reasons: &[&str]) {
        let begun = Instant::now();
        loop {
            let all: Api<Event> = Api::namespaced(self.plane.client(), "default");
            let mut all = all.list(&Default::default()).await.or_fail().items;
            all.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
            let of = |event: &&Event| {
                event
                    .regarding
                    .as_ref()
                    .is_some_and(|of| of.name.as_deref() == Some(secret))
            };
            let now: Vec<_> = all
                .iter()
                .filter(of)
                .filter_map(|event| event.reason.as_deref())
                .collect();
            if now == reasons {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "events on {secret}: {now:?}, not {reasons:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// All requests of the provider, but those of the test kit, which asks as that user whether its rights work.
    async fn asked(&self) -> Vec<String> {
        let log = self.plane.audit().await.or_fail();
        let of_robot = log
            .events()
            .filter(|event| event.user == "robot" && event.is_start());
        let of_robot = of_robot.filter(|event| event.group != "authorization.k8s.io");
        of_robot
            .map(|event| format!("{} {}", event.verb, event.uri))
            .collect()
    }
}

fn animals(plane: &ControlPlane) -> Api<ConfigMap> {
    Api::namespaced(plane.client(), "default")
}

/// Creates a hungry animal.
async fn create(plane: &ControlPlane, name: &str, kind: &str) {
    let labels = Some(BTreeMap::from([("type".into(), kind.into())]));
    let metadata = ObjectMeta {
        name: Some(name.into()),
        labels,
        ..ObjectMeta::default()
    };
    let animal = ConfigMap {
        metadata,
        ..ConfigMap::default()
    };
    animals(plane)
        .create(&PostParams::default(), &animal)
        .await
        .or_fail();
}

fn is_full(animal: &ConfigMap) -> bool {
    let stomach = animal.data.as_ref().and_then(|data| data.get("stomach"));
    stomach.is_some_and(|food| food == "food")
}

async fn is_fed(plane: &ControlPlane, name: &str) {
    let begun = Instant::now();
    while !is_full(&animals(plane).get(name).await.or_fail()) {
        assert!(
            begun.elapsed() < PATIENCE,
            "{name} is still hungry after {PATIENCE:?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

async fn born(plane: &ControlPlane, name: &str) {
    create(plane, name, "animal").await;
    is_fed(plane, name).await;
}

/// Fills empty stomachs.
async fn feed(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    if request.live().is_some_and(|animal| !is_full(animal)) {
        let food = Patch::Merge(json!({"data": {"stomach": "food"}}));
        let animals = request.cluster.namespaced::<ConfigMap>("default");
        animals
            .patch(request.name(), &PatchParams::default(), &food)
            .await?;
    }
    Ok(Action::await_change())
}

/// A manager with one controller over a provider.
struct Running {
    fleet: Fleet,
    running: Background<Result<(), ManagerError>>,
}

impl Running {
    fn start(provider: impl Provider) -> Self {
        let keeper = Controller::<ConfigMap>::new("keeper")
            .watch_request(|watch| watch.namespace("default").labels("type"))
            .build(feed, Arc::new(()));
        let manager = Manager::builder()
            .provider(provider)
            .settings(|settings| {
                settings.access_policy = loopback_policy();
                // Many Secrets lead to few API servers.
                settings.allow_duplicates = true;
                // Half a minute by default, which is no time that a test has.
                let mut transport = TransportSettings::default();
                transport.rotation_spread = Duration::from_secs(1);
                settings.transport = transport.into();
            })
            .controller(keeper)
            .build()
            .or_fail();
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
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    async fn names_are(&self, names: &[&str]) {
        let now = || {
            self.fleet
                .clusters()
                .iter()
                .map(|cluster| cluster.name().to_string())
                .collect::<Vec<_>>()
        };
        eventually(PATIENCE, format!("the clusters are {names:?}"), || now() == names).await;
    }

    async fn ready(&self, name: &str) -> Cluster {
        eventually(PATIENCE, format!("{name} is ready"), || {
            let cluster = self.fleet.get(name).ok();
            cluster.filter(|cluster| cluster.state() == ClusterState::Ready)
        })
        .await
    }

    /// Waits until this is in the reason or the warnings of a cluster in this state.
    async fn shows(&self, name: &str, state: &str, part: &str) {
        eventually(PATIENCE, format!("{name} is {state}: {part}"), || {
            let clusters = self.fleet.snapshot().clusters;
            let mut of_name = clusters
                .iter()
                .filter(|status| status.name == *name && status.state == state);
            of_name.any(|status| {
                status
                    .reason
                    .iter()
                    .chain(&status.warnings)
                    .any(|text| text.contains(part))
            })
        })
        .await;
    }

    /// The names of all humans in a cluster, once it is listed.
    async fn humans(&self, cluster: &str) -> Vec<String> {
        let cluster = self.ready(cluster).await;
        let store = eventually(PATIENCE, "the animals are watched", || {
            cluster.store::<ConfigMap>().ok()
        })
        .await;
        store.wait_synced(PATIENCE).await.or_fail();
        let humans = store.by_index("type", "human").or_fail();
        humans
            .iter()
            .filter_map(|human| human.metadata.name.clone())
            .collect()
    }
}

/// How often animals were listed.
fn lists(log: &AuditLog) -> usize {
    log.count(|event| event.is_list("configmaps"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_16_to_23_secrets_are_clusters_that_come_change_and_go() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, zoo, jungle, island] = planes(&etcd).await;
    let hub = Hub::new(hub).await;
    create(&zoo, "elephant", "animal").await;
    create(&island, "crusoe", "human").await;
    for (name, plane) in [("zoo", &zoo), ("jungle", &jungle), ("island", &island)] {
        hub.put(name, plane.kubeconfig()).await;
    }

    // P-16: three Secrets, three clusters.
    let running = Running::start(hub.provider().await.build().or_fail());
    running.names_are(&["island", "jungle", "zoo"]).await;
    // P-17 to P-19: existing, new and updated objects.
    is_fed(&zoo, "elephant").await;
    is_fed(&island, "crusoe").await;
    born(&zoo, "lion").await;
    let empty = Patch::Merge(json!({"data": {"stomach": null}}));
    animals(&zoo)
        .patch("elephant", &PatchParams::default(), &empty)
        .await
        .or_fail();
    is_fed(&zoo, "elephant").await;
    // P-20: an index.
    assert_eq!(running.humans("island").await, ["crusoe"]);

    // P-22: an annotation on a Secret changes nothing at the cluster.
    let before = running.ready("island").await;
    let mark = island.audit().await.or_fail().mark();
    hub.annotate("island", "property.mcr.dev/climate", "tropical")
        .await;
    eventually(PATIENCE, "the property is shown", || {
        before.properties().contains_key("climate")
    })
    .await;
    born(&island, "goat").await;
    assert!(running.fleet.get("island").or_fail().is_same(&before));
    let asked = island.audit_since(mark).await.or_fail();
    let begun = asked.count(|event| event.is_watch_start("configmaps"));
    assert_eq!((lists(&asked), begun), (0, 0), "no connection is touched");

    // P-21: the Secret of the island leads to the jungle now.
    hub.put("island", jungle.kubeconfig()).await;
    eventually(PATIENCE, "nothing is left of the island", || {
        before.state() == ClusterState::Gone
    })
    .await;
    born(&jungle, "tiger").await;
    assert_eq!(running.humans("island").await, [""; 0]);

    // P-24 and P-25: what can't be used concerns itself, which is reported on the Secret.
    hub.put("empty", "").await;
    running.shows("empty", "Broken", "is empty").await;
    hub.events_are("empty", &["KubeconfigBroken"]).await;
    hub.put("empty", zoo.kubeconfig()).await;
    running.ready("empty").await;
    hub.events_are("empty", &["KubeconfigBroken", "KubeconfigUsable"])
        .await;

    // P-23: a Secret is deleted.
    for name in ["island", "empty"] {
        hub.secrets.delete(name, &DeleteParams::default()).await.or_fail();
    }
    running.names_are(&["jungle", "zoo"]).await;
    running.running.stop().await.or_fail();

    let asked = hub.asked().await;
    assert_eq!(
        asked.iter().filter(|asked| asked.starts_with("list")).count(),
        1,
        "{asked:?}"
    );
    for asked in &asked {
        let event = asked.contains(" /apis/events.k8s.io/v1/namespaces/default/events");
        assert!(
            event
                || asked.contains("/api/v1/namespaces/default/secrets?") && asked.contains("labelSelector="),
            "{asked}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_32_and_33_as_a_child_of_multi_with_an_index_that_was_there_before() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, remote] = planes(&etcd).await;
    let hub = Hub::new(hub).await;
    create(&remote, "robinson", "human").await;
    let multi = MultiProvider::builder().build().or_fail();
    let children = multi.handle();
    let running = Running::start(multi);

    // P-32: added while all runs, and its Secret after it.
    children
        .add_as("kc", hub.provider().await.build().or_fail())
        .or_fail();
    hub.put("remote", remote.kubeconfig()).await;
    assert_eq!(running.ready("kc#remote").await.provider(), "kc");
    born(&remote, "parrot").await;
    // P-33: an index registered before either.
    assert_eq!(running.humans("kc#remote").await, ["robinson"]);
    assert!(children.remove("kc"));
    running.names_are(&[]).await;
    running.running.stop().await.or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_kubeconfig_costs_no_list_and_the_old_credentials_are_released() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member] = planes(&etcd).await;
    let hub = Hub::new(hub).await;
    let user = async |name: &str| {
        member
            .user(name)
            .groups(["system:masters"])
            .create()
            .await
            .or_fail()
    };
    let (old, new) = (user("old").await, user("new").await);
    hub.put("member", old.kubeconfig()).await;
    let running = Running::start(hub.provider().await.build().or_fail());
    born(&member, "elephant").await;
    let before = running.ready("member").await;
    let mark = member.audit().await.or_fail().mark();

    hub.put("member", new.kubeconfig()).await;
    // Another animal again and again, so that requests are made all the time.
    let (mut fed, begun) = (0, Instant::now());
    loop {
        fed += 1;
        born(&member, &format!("animal-{fed}")).await;
        let asked = member.audit_since(mark).await.or_fail();
        let ended = asked
            .count(|event| event.user == "old" && event.verb == "watch" && event.stage == "ResponseComplete");
        let begins = asked.count(|event| event.user == "new" && event.is_watch_start("configmaps"));
        if ended >= 1 && begins >= 1 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the old watch goes on");
        sleep(Duration::from_millis(200)).await;
    }
    let mark_after = member.audit().await.or_fail().mark();
    for animal in ["last", "very-last"] {
        born(&member, animal).await;
    }
    let asked = member.audit_since(mark).await.or_fail();
    assert_eq!(lists(&asked), 0, "a rotation costs no LIST");
    let after = member.audit_since(mark_after).await.or_fail();
    let of_old = after.count(|event| event.user == "old");
    assert_eq!(of_old, 0, "nothing is requested with the old credentials");
    assert!(running.fleet.get("member").or_fail().is_same(&before));

    // A rotation to credentials that the cluster refuses: the last good ones go on.
    let mut stranger: Value = serde_saphyr::from_str(&new.kubeconfig()).or_fail();
    stranger["users"][0]["user"] = json!({"token": "nobody-knows"});
    hub.put("member", stranger.to_string()).await;
    running.shows("member", "Ready", "credentials").await;
    born(&member, "late").await;
    running.running.stop().await.or_fail();
}
