//! What the tests of this folder share.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    events::v1::Event,
    rbac::v1::PolicyRule,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcr::{Action, BuildError, BuiltController, Cluster, Controller, Fleet, Manager, ManagerError, Request};
use mcr_core::{ClusterState, Provider, TransportSettings};
use mcr_provider_kubeconfig::{KubeconfigProvider, KubeconfigProviderBuilder};
use mcr_testkit::{
    control_plane::{AuditLog, ControlPlane, Etcd, User},
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{self, locally};

/// What never comes is given up after this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const FED: &str = "food";

/// Everything this process has logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines logged so far that this is in.
pub(crate) fn logged(part: &str) -> Vec<String> {
    let log = String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned();
    log.lines()
        .filter(|line| line.contains(part))
        .map(Into::into)
        .collect()
}

pub(crate) async fn planes<const N: usize>(etcd: &Etcd) -> [ControlPlane; N] {
    let starting = (0..N).map(|_| ControlPlane::builder().etcd(etcd).audit(true).start());
    let planes: Vec<_> = futures::future::join_all(starting).await;
    let planes: Vec<ControlPlane> = planes.into_iter().map(OrFail::or_fail).collect();
    let Ok(planes) = planes.try_into() else {
        panic!("{N} planes were asked for")
    };
    planes
}

/// The rules of the Role in the README.
pub(crate) fn documented_rules() -> Vec<PolicyRule> {
    let readme = include_str!("../../README.md");
    let (_, role) = readme.split_once("```yaml\n").unwrap();
    let (role, _) = role.split_once("```").unwrap();
    let role: Value = serde_saphyr::from_str(role).or_fail();
    assert_eq!(role["kind"], "Role");
    serde_json::from_value(role["rules"].clone()).or_fail()
}

/// The cluster that has the Secrets.
pub(crate) struct Hub {
    pub(crate) plane: ControlPlane,
    /// Whom the provider acts as.
    pub(crate) robot: User,
    pub(crate) namespace: &'static str,
}

impl Hub {
    /// With a namespace that no other test has, so that its lines can be found in the log.
    pub(crate) async fn new(plane: ControlPlane, namespace: &'static str) -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            tracing_subscriber::fmt()
                .with_env_filter(
                    "info,mcr=debug,mcr_core=debug,mcr_provider_kubeconfig=trace,kube_client=trace",
                )
                .with_ansi(false)
                .with_writer(|| Logged)
                .init();
        });
        let wanted = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(plane.client());
        namespaces.create(&PostParams::default(), &wanted).await.or_fail();
        let robot = plane
            .user("robot")
            .rules_in(namespace, documented_rules())
            .create();
        Self {
            robot: robot.await.or_fail(),
            plane,
            namespace,
        }
    }

    pub(crate) async fn provider(&self) -> KubeconfigProviderBuilder {
        KubeconfigProvider::builder()
            .client(self.robot.client().await.or_fail())
            .namespace(self.namespace)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.plane.client(), self.namespace)
    }

    /// Creates a Secret, or replaces what it has.
    pub(crate) async fn put(&self, name: &str, kubeconfig: impl AsRef<[u8]>) {
        self.apply(name, support::secret(self.namespace, name, kubeconfig))
            .await;
    }

    pub(crate) async fn apply(&self, name: &str, secret: Value) {
        let params = PatchParams::apply("test").force();
        self.secrets()
            .patch(name, &params, &Patch::Apply(secret))
            .await
            .or_fail();
    }

    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: &str) {
        self.merge(name, json!({"metadata": {"annotations": {annotation: value}}}))
            .await;
    }

    pub(crate) async fn merge(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.secrets()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .or_fail();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.secrets()
            .delete(name, &DeleteParams::default())
            .await
            .or_fail();
    }

    /// The events on a Secret: reason and text, oldest first.
    pub(crate) async fn events(&self, secret: &str) -> Vec<(String, String)> {
        let all: Api<Event> = Api::namespaced(self.plane.client(), self.namespace);
        let mut all = all.list(&ListParams::default()).await.or_fail().items;
        all.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
        let of = |event: &Event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|object| object.name.as_deref() == Some(secret))
        };
        let texts = all
            .into_iter()
            .filter(of)
            .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()));
        texts.collect()
    }

    /// Waits until a Secret has so many events.
    pub(crate) async fn events_are(&self, secret: &str, reasons: &[&str]) -> Vec<(String, String)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(secret).await;
            if events.iter().map(|(reason, _)| reason).eq(reasons) {
                return events;
            }
            assert!(
                Instant::now() < deadline,
                "events on {secret}: {events:?}, not {reasons:?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// All that the provider has asked of the hub.
    pub(crate) async fn asked(&self) -> Vec<String> {
        let log = self.plane.audit().await.or_fail();
        let of_robot = log
            .events()
            .filter(|event| event.user == "robot" && event.is_start());
        // What the test kit itself asks as that user, to see whether its rights work.
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
pub(crate) async fn create(plane: &ControlPlane, name: &str, kind: &str) {
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

pub(crate) async fn empty_stomach(plane: &ControlPlane, name: &str) {
    let patch = Patch::Merge(json!({"data": {"stomach": null}}));
    animals(plane)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .or_fail();
}

pub(crate) async fn is_fed(plane: &ControlPlane, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let animal = animals(plane).get(name).await.or_fail();
        let stomach = animal.data.as_ref().and_then(|data| data.get("stomach"));
        if stomach.is_some_and(|food| food == FED) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{name} is still hungry after {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes down `<cluster> <object>` for every look at an animal.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<String>>);

impl Seen {
    pub(crate) fn has(&self, line: &str) -> bool {
        self.0.lock().unwrap().iter().any(|known| known == line)
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
        let patch = Patch::Merge(json!({"data": {"stomach": FED}}));
        let animals = request.cluster.namespaced::<ConfigMap>("default");
        animals
            .patch(request.name(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

fn keeper(seen: &Arc<Seen>) -> Result<BuiltController, BuildError> {
    Controller::<ConfigMap>::new("keeper")
        .watch_request(|watch| watch.namespace("default").labels("type"))
        .build(feed, seen.clone())
}

/// A manager with one controller over a provider.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) seen: Arc<Seen>,
    running: Background<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) fn start(provider: impl Provider) -> Self {
        let seen = Arc::new(Seen::default());
        let manager = Manager::builder()
            .provider(provider)
            .settings(|settings| {
                settings.access_policy = locally();
                // Many Secrets lead to few API servers.
                settings.allow_duplicates = true;
                // Half a minute by default, which is no time that a test has.
                let mut transport = TransportSettings::default();
                transport.rotation_spread = Duration::from_secs(1);
                settings.transport = transport.into();
            })
            .controller(keeper(&seen))
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
            seen,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let clusters = self.fleet.clusters();
        clusters
            .iter()
            .map(|cluster| cluster.name().to_string())
            .collect()
    }

    pub(crate) async fn names_are(&self, names: &[&str]) {
        let what = format!("the clusters are {names:?}");
        eventually(PATIENCE, &what, || self.names() == names).await;
    }

    pub(crate) async fn ready(&self, name: &str) -> Cluster {
        let what = format!("{name} is ready");
        eventually(PATIENCE, &what, || {
            self.fleet
                .get(name)
                .ok()
                .filter(|cluster| cluster.state() == ClusterState::Ready)
        })
        .await
    }

    /// What is shown of a cluster: its state, its reason and its warnings.
    pub(crate) fn shown(&self, name: &str) -> Option<(&'static str, String)> {
        let snapshot = self.fleet.snapshot();
        let status = snapshot
            .clusters
            .into_iter()
            .find(|status| status.name == *name)?;
        let reasons = status.reason.iter().chain(&status.warnings);
        Some((
            status.state,
            reasons.map(|text| &**text).collect::<Vec<_>>().join("; "),
        ))
    }

    /// Waits until this is in what is shown of a cluster.
    pub(crate) async fn shows(&self, name: &str, state: &str, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown(name);
            if shown
                .as_ref()
                .is_some_and(|(now, text)| *now == state && text.contains(part))
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{name} is not {state} with {part:?}, but {shown:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The names of all humans in a cluster, once it is listed.
    pub(crate) async fn humans(&self, cluster: &str) -> Vec<String> {
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

    pub(crate) async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}

/// How often animals were listed.
pub(crate) fn lists(log: &AuditLog) -> usize {
    log.count(|event| event.is_list("configmaps"))
}
