//! Real kind clusters in a real engine, a manager and a controller over them.
//!
//! Needs `MCR_KIND` and `MCR_NODE_IMAGE`, which `cargo xtask node-image` prints, and the engine they are for (`DOCKER_HOST`).
//! Where they are not set, the test says that it is skipped. With `MCR_ENGINE` (the path of `.ci/engine`) the engine is also
//! ended and started again; set it only where the engine is one of that script's.
//!
//! Alone in its process: it takes the engine down.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    io::Write,
    path::PathBuf,
    process::Output,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use mcr::{Action, Cluster, ClusterState, Controller, Fleet, Manager, Request};
use mcr_provider_kind::KindProvider;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Nothing here may take longer; kind has half a minute on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Writes past libtest, which hides what a passing test prints.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "e2e: {text}");
}

struct Kind {
    program: String,
    image: String,
    prefix: String,
    folder: tempfile::TempDir,
}

impl Kind {
    fn find() -> Option<Self> {
        let (Ok(program), Ok(image)) = (std::env::var("MCR_KIND"), std::env::var("MCR_NODE_IMAGE")) else {
            return None;
        };
        Some(Self {
            program,
            image,
            prefix: format!("mcr-e2e-{}-", std::process::id()),
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn name(&self, cluster: &str) -> String {
        format!("{}{cluster}", self.prefix)
    }

    fn node(&self, cluster: &str) -> String {
        format!("{}-control-plane", self.name(cluster))
    }

    async fn create(&self, cluster: &str) {
        let name = self.name(cluster);
        let took = self
            .kind(&[
                "create",
                "cluster",
                "--quiet",
                "--name",
                &name,
                "--image",
                &self.image,
            ])
            .await;
        say(&format!("kind made a cluster in {took:?}"));
    }

    async fn delete(&self, cluster: &str) {
        self.kind(&["delete", "cluster", "--quiet", "--name", &self.name(cluster)])
            .await;
    }

    async fn kind(&self, args: &[&str]) -> Duration {
        let start = Instant::now();
        // kind writes what it made into a kubeconfig; not into the user's.
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        run(command).await;
        start.elapsed()
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        // Also after a failure: nothing of a test stays in the engine.
        let name = |cluster: &str| self.node(cluster);
        let nodes = ["a", "b"].map(name);
        let _ = std::process::Command::new("docker")
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

async fn docker(args: &[&str]) -> String {
    let mut command = Command::new("docker");
    command.args(args);
    String::from_utf8(run(command).await.stdout)
        .unwrap()
        .trim()
        .to_owned()
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
}

impl World {
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
    let Some(kind) = Kind::find() else {
        say(
            "SKIPPED: MCR_KIND and MCR_NODE_IMAGE are not set. `cargo xtask node-image` makes both, given a container engine",
        );
        return;
    };
    let provider = KindProvider::builder().prefix(&kind.prefix).build().unwrap();
    let seen = Seen::default();
    let controller = Controller::<ConfigMap>::new("look")
        .watch_request(|watch| watch.namespace("default"))
        .build(look, Arc::new(seen.clone()));
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .build()
        .unwrap();
    let world = World {
        kind,
        fleet: manager.fleet().clone(),
        seen,
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    until("the engine was asked", || {
        world.fleet.is_discovered().then_some(())
    })
    .await;

    // Two at once: seen while they are made, ready when kind says that they are.
    let first_seen = async {
        until("the half-made cluster is seen", || world.state("a")).await;
        SystemTime::now()
    };
    let (_, _, seen_at) = tokio::join!(world.kind.create("a"), world.kind.create("b"), first_seen);
    let created = Instant::now();
    let a = world.ready("a").await;
    let b = world.ready("b").await;
    let ready = created.elapsed();
    let made_at = docker(&["inspect", "--format", "{{.Created}}", &world.kind.node("a")]).await;
    let made_at: SystemTime = made_at.parse::<k8s_openapi::jiff::Timestamp>().unwrap().into();
    let noticed = seen_at.duration_since(made_at).unwrap_or_default();
    say(&format!(
        "a container was noticed {noticed:?} after it was made; clusters were ready {ready:?} after kind was done"
    ));
    assert!(
        ready < Duration::from_secs(1),
        "ready {ready:?} after kind was done"
    );
    assert!(
        noticed < Duration::from_secs(2),
        "noticed {noticed:?} after it was made"
    );
    world.reconciles(&a, "one").await;
    world.reconciles(&b, "one").await;

    // Stopped and started: the same cluster, suspended in between, and its neighbour does not notice.
    let (node, start) = (world.kind.node("a"), Instant::now());
    let stop_it = ["stop", node.as_str()];
    let stopping = tokio::join!(docker(&stop_it), world.suspended("a"));
    say(&format!(
        "a node was stopped and its cluster suspended in {:?} ({})",
        start.elapsed(),
        stopping.0
    ));
    assert!(b.state().is_ready());
    docker(&["start", &world.kind.node("a")]).await;
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
    match std::env::var("MCR_ENGINE").map(PathBuf::from) {
        Ok(engine) => {
            let control = async |what: &str| {
                let mut command = Command::new(&engine);
                command.arg(what);
                run(command).await;
            };
            control("halt").await;
            until("the engine can't be asked", || {
                let snapshot = world.fleet.snapshot();
                snapshot
                    .providers
                    .iter()
                    .find_map(|provider| provider.last_error.clone())
            })
            .await;
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
            // The provider has found the engine, too: it hears of what comes next.
            until("the provider goes on", || {
                world.fleet.is_discovered().then_some(())
            })
            .await;
        }
        Err(_) => say("SKIPPED in part: MCR_ENGINE is not set, so the engine is not ended and started again"),
    }

    // Removed behind kind's back.
    docker(&["rm", "-f", "-v", &world.kind.node("b")]).await;
    let took = world.gone("b", Instant::now()).await;
    say(&format!(
        "a cluster whose container was removed was gone after {took:?}"
    ));
    world.kind.delete("a").await;
    world.gone("a", Instant::now()).await;

    stop.cancel();
    tokio::time::timeout(DEADLINE, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
