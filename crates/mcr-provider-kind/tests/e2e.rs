//! Real kind clusters in a real engine, a manager and a controller over them. `cargo xtask e2e` runs it.
//!
//! The clusters are its own: they are stopped, deleted and removed behind kind's back. Where `MCR_ENGINE` is set, the engine is
//! also ended and started again.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use mcr::{Action, Cluster, ClusterState, Controller, Fleet, Manager, ManagerError, Request};
use mcr_provider_kind::{KindProvider, KindProviderBuilder};
use mcr_testkit::{
    e2e::{self, E2e, E2eKind},
    waiting::Background,
};
use tokio::process::Command;

/// Nothing here may take longer; kind has half a minute on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// How long after there is a cluster it may take to be ready.
const PROMISED: Duration = Duration::from_secs(1);

/// Writes past libtest, which hides what a passing test prints.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "e2e: {text}");
}

/// Makes clusters whose names begin with what no others do, and removes them.
struct Kind {
    with: E2eKind,
    prefix: String,
    folder: tempfile::TempDir,
}

impl Kind {
    fn new(e2e: &E2e, purpose: &str) -> Self {
        let with = e2e.kind();
        Self {
            prefix: format!("{}{purpose}-", with.prefix),
            with,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn name(&self, cluster: &str) -> String {
        format!("{}{cluster}", self.prefix)
    }

    fn node(&self, cluster: &str) -> String {
        format!("{}-control-plane", self.name(cluster))
    }

    /// What makes a cluster.
    fn creation(&self, cluster: &str) -> Command {
        let mut create = self.kind(&["create", "cluster", "--quiet", "--name", &self.name(cluster)]);
        if let Some(image) = &self.with.node_image {
            create.args(["--image", image]);
        }
        create
    }

    async fn create(&self, cluster: &str) {
        let start = Instant::now();
        run(self.creation(cluster)).await;
        say(&format!("kind made a cluster in {:?}", start.elapsed()));
    }

    async fn delete(&self, cluster: &str) {
        run(self.kind(&["delete", "cluster", "--quiet", "--name", &self.name(cluster)])).await;
    }

    fn kind(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.with.program);
        // kind writes what it made into a kubeconfig; not into the user's.
        command
            .args(args)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        command
    }

    async fn engine(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.with.engine);
        command.args(args);
        let output = run(command).await.stdout;
        String::from_utf8(output).unwrap().trim().to_owned()
    }

    /// When a node's container ran.
    async fn started(&self, cluster: &str) -> SystemTime {
        let node = self.node(cluster);
        let started = self
            .engine(&["inspect", "--format", "{{.State.StartedAt}}", &node])
            .await;
        started.parse::<k8s_openapi::jiff::Timestamp>().unwrap().into()
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        // Also after a failure: nothing of a test stays in the engine.
        let name = |cluster: &str| self.node(cluster);
        let nodes = ["a", "b"].map(name);
        let _ = std::process::Command::new(&self.with.engine)
            .args(["rm", "-f", "-v"])
            .args(nodes)
            .output();
    }
}

async fn run(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = tokio::time::timeout(DEADLINE, command.kill_on_drop(true).output());
    let output = output.await.unwrap_or_else(|_| panic!("{shown} hangs")).unwrap();
    assert!(
        output.status.success(),
        "{shown}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

async fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = so() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Which engagements of which clusters saw which ConfigMaps.
type Seen = Arc<Mutex<Vec<(String, u64, String)>>>;

async fn look(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    if request.live().is_some() {
        let cluster = &request.cluster;
        let line = (
            cluster.name().to_string(),
            cluster.epoch(),
            request.name().to_owned(),
        );
        seen.lock().unwrap().push(line);
    }
    Ok(Action::await_change())
}

struct World {
    kind: Kind,
    fleet: Fleet,
    seen: Seen,
    running: Background<Result<(), ManagerError>>,
}

impl World {
    /// A manager over the clusters of a test, with a controller that looks at ConfigMaps.
    fn start(kind: Kind, provider: KindProviderBuilder) -> Self {
        let provider = provider.prefix(&kind.prefix).build().unwrap();
        let seen = Seen::default();
        let controller = Controller::<ConfigMap>::new("look")
            .watch_request(|watch| watch.namespace("default"))
            .build(look, Arc::new(seen.clone()));
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .unwrap();
        Self {
            kind,
            fleet: manager.fleet().clone(),
            seen,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    async fn is_asked(&self) {
        until("the engine was asked", || {
            self.fleet.is_discovered().then_some(())
        })
        .await;
    }

    /// What the provider says is wrong with its engine.
    async fn trouble(&self) -> String {
        until("the engine can't be asked", || {
            let snapshot = self.fleet.snapshot();
            let mut errors = snapshot.providers.iter();
            errors.find_map(|provider| provider.last_error.clone())
        })
        .await
    }

    async fn stop(self) {
        self.running.stop().await.unwrap();
    }

    fn state(&self, cluster: &str) -> Option<(&'static str, String)> {
        let name = self.kind.name(cluster);
        let snapshot = self.fleet.snapshot();
        let status = snapshot
            .clusters
            .iter()
            .find(|status| status.name == name.as_str())?;
        Some((
            status.state,
            status.reason.as_deref().unwrap_or_default().to_owned(),
        ))
    }

    async fn ready(&self, cluster: &str) -> Cluster {
        let name = self.kind.name(cluster);
        until(&format!("{name} is ready"), || {
            let cluster = self.fleet.get(name.as_str()).ok()?;
            cluster.state().is_ready().then_some(cluster)
        })
        .await
    }

    /// How long after `since` the cluster was gone.
    async fn gone(&self, cluster: &str, since: Instant) -> Duration {
        until(&format!("{cluster} is gone"), || {
            self.state(cluster).is_none().then_some(())
        })
        .await;
        since.elapsed()
    }

    async fn suspended(&self, cluster: &str) {
        let (_, reason) = until(&format!("{cluster} is suspended"), || {
            self.state(cluster).filter(|(state, _)| *state == "Suspended")
        })
        .await;
        assert_eq!(reason, "its node is stopped");
    }

    /// Makes a namespace and waits until the cluster has put into it what is in each.
    async fn controllers_work(&self, cluster: &Cluster, name: &str) {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let start = Instant::now();
        cluster
            .api::<Namespace>()
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let accounts = cluster.namespaced::<ServiceAccount>(name);
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            assert!(start.elapsed() < DEADLINE, "nothing works in {}", cluster.name());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Creates a ConfigMap and waits for its reconcile.
    async fn reconciles(&self, cluster: &Cluster, name: &str) {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let start = Instant::now();
        let maps = cluster.namespaced::<ConfigMap>("default");
        // A control plane that has just been started makes its namespaces a moment later.
        loop {
            match maps.create(&PostParams::default(), &map).await {
                Ok(_) => break,
                Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let written = start.elapsed();
        let line = (cluster.name().to_string(), cluster.epoch(), name.to_owned());
        let told = || self.seen.lock().unwrap().contains(&line).then_some(());
        until(&format!("{line:?} is reconciled"), told).await;
        say(&format!(
            "a ConfigMap could be written after {written:?} and was reconciled after {:?}",
            start.elapsed()
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clusters_are_found_followed_and_let_go() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "life");
    let world = World::start(kind, KindProvider::builder());
    world.is_asked().await;

    // Two at once: seen while they are made, ready when kind says that they are.
    let first_seen = async {
        until("the half-made cluster is seen", || world.state("a")).await;
        SystemTime::now()
    };
    let made = async |cluster: &str| {
        world.kind.create(cluster).await;
        let created = Instant::now();
        (world.ready(cluster).await, created.elapsed())
    };
    let ((a, a_took), (b, b_took), seen_at) = tokio::join!(made("a"), made("b"), first_seen);
    let noticed = seen_at.duration_since(world.kind.started("a").await);
    let noticed = noticed.unwrap_or_default();
    let ready = a_took.max(b_took);
    say(&format!(
        "a container was noticed {noticed:?} after it ran; clusters were ready {ready:?} after kind was done"
    ));
    assert!(ready < PROMISED, "ready {ready:?} after kind was done");
    assert!(noticed < PROMISED, "noticed {noticed:?} after it ran");
    world.reconciles(&a, "one").await;
    world.reconciles(&b, "one").await;

    // Stopped and started: the same cluster, suspended in between, and its neighbour does not notice.
    let (node, start) = (world.kind.node("a"), Instant::now());
    let stop_it = ["stop", node.as_str()];
    let stopping = tokio::join!(world.kind.engine(&stop_it), world.suspended("a"));
    say(&format!(
        "a node was stopped and its cluster suspended in {:?} ({})",
        start.elapsed(),
        stopping.0
    ));
    assert!(b.state().is_ready());
    world.kind.engine(&["start", &world.kind.node("a")]).await;
    let start = Instant::now();
    let again = world.ready("a").await;
    say(&format!("a started node was Ready after {:?}", start.elapsed()));
    assert!(again.is_same(&a), "the same cluster");
    world.reconciles(&again, "two").await;

    // Made anew under the same name: another cluster.
    world.kind.delete("a").await;
    let took = world.gone("a", Instant::now()).await;
    say(&format!(
        "a deleted cluster was gone {took:?} after kind was done"
    ));
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(a.state(), ClusterState::Gone);
    world.kind.create("a").await;
    let anew = world.ready("a").await;
    assert!(
        anew.epoch() > a.epoch() && anew.identity() != a.identity(),
        "{:?} and {:?}",
        anew.identity(),
        a.identity()
    );
    world.reconciles(&anew, "one").await;

    // The engine ends and starts again: nothing is removed, and all come back.
    match &world.kind.with.control {
        Some(engine) => {
            let control = async |what: &str| {
                let mut command = Command::new(engine);
                command.arg(what);
                run(command).await;
            };
            control("halt").await;
            world.trouble().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(
                world.state("a").is_some() && world.state("b").is_some(),
                "nothing is removed"
            );
            control("start").await;
            let start = Instant::now();
            let (same_a, same_b) = (world.ready("a").await, world.ready("b").await);
            say(&format!(
                "clusters were Ready {:?} after the engine was started again",
                start.elapsed()
            ));
            assert!(same_a.is_same(&anew) && same_b.is_same(&b), "they are the same");
            world.reconciles(&same_b, "three").await;
            world.controllers_work(&same_b, "after-the-start").await;
            // The provider has found the engine, too: it hears of what comes next.
            until("the provider goes on", || {
                world.fleet.is_discovered().then_some(())
            })
            .await;
        }
        None => e2e::skipped_in_part(
            "the engine's end and start",
            "MCR_ENGINE is not set, so the engine may be somebody else's too",
        ),
    }

    // Removed behind kind's back.
    world
        .kind
        .engine(&["rm", "-f", "-v", &world.kind.node("b")])
        .await;
    let took = world.gone("b", Instant::now()).await;
    say(&format!(
        "a cluster whose container was removed was gone after {took:?}"
    ));
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;

    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_left_half_made_is_explained_and_hurts_no_other() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "half");
    let world = World::start(kind, KindProvider::builder());
    world.kind.create("b").await;
    let b = world.ready("b").await;

    // kind is killed as soon as there is a node, so it takes nothing back.
    let mut creation = world.kind.creation("a").kill_on_drop(true).spawn().unwrap();
    until("a node runs", || world.state("a")).await;
    creation.kill().await.unwrap();
    let (state, reason) = until("it is explained", || {
        world.state("a").filter(|(state, _)| *state == "Broken")
    })
    .await;
    say(&format!("a half-made cluster is {state}: {reason}"));
    for word in [world.kind.node("a").as_str(), "kind"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert!(world.fleet.get(world.kind.name("a").as_str()).is_err());
    world.reconciles(&b, "beside-it").await;

    // What the user does about it.
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;
    world.kind.create("a").await;
    let a = world.ready("a").await;
    world.reconciles(&a, "one").await;
    assert!(
        b.state().is_ready(),
        "its neighbour did not notice: {:?}",
        b.state()
    );
    world.kind.delete("a").await;
    world.kind.delete("b").await;
    world.stop().await;
}

/// A program that says it is an engine's, whose engine never answers.
fn silent(folder: &Path, name: &str, greeting: &str) {
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -v ] && echo '{greeting}' && exit\n\
         echo 'Cannot connect to the engine at unix:///nowhere. Is it running?' >&2\nexit 1\n"
    );
    program(folder, name, &script);
}

/// Another file takes the place of the old one, so that nobody starts half of it.
fn program(folder: &Path, name: &str, script: &str) {
    let new = folder.join("new");
    fs::write(&new, script).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, folder.join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_engines_the_silent_one_is_explained_and_does_not_stand_in_the_way() {
    let Some(e2e) = E2e::from_env() else { return };
    let kind = Kind::new(&e2e, "two");
    if kind.with.engine != "docker" {
        e2e::skipped(
            "of_two_engines_the_silent_one_is_explained_and_does_not_stand_in_the_way",
            "it is about Docker",
        );
        return;
    }
    kind.create("a").await;
    let silent_ones = tempfile::tempdir().unwrap();
    silent(silent_ones.path(), "podman", "podman version 4.3.1");
    silent(silent_ones.path(), "nerdctl", "nerdctl version 2.0.0");
    let path = std::env::var("PATH").unwrap();
    let before = format!("{}:{path}", silent_ones.path().display());
    let provider = || KindProvider::builder().env("PATH", &before);

    // Docker answers; two others are installed, too, and found earlier.
    let world = World::start(kind, provider());
    let a = world.ready("a").await;
    world.reconciles(&a, "one").await;
    let World { kind, running, .. } = world;
    running.stop().await.unwrap();

    // The one that is chosen does not answer: said with its name. It starts: found without a word from anybody.
    let real = path.split(':').map(|folder| Path::new(folder).join("docker"));
    let real = real.into_iter().find(|program| program.is_file()).unwrap();
    silent(
        silent_ones.path(),
        "docker",
        "Docker version 28.0.0, build silent",
    );
    let world = World::start(kind, provider());
    let trouble = world.trouble().await;
    say(&format!("of an engine that does not answer: {trouble}"));
    for word in ["docker", "podman", "nerdctl"] {
        assert!(trouble.contains(word), "{trouble}");
    }
    assert!(world.state("a").is_none());
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", real.display());
    program(silent_ones.path(), "docker", &script);
    let a = world.ready("a").await;
    world.reconciles(&a, "two").await;
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;
    world.stop().await;
}
