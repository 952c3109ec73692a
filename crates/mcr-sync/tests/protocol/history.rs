//! One history: its actions, the program under test, and its end.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{
    Access, BuiltController, Cluster, ClusterName, ClusterSelector, ClusterSpec, Fleet, Manager, ManagerError,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::{NameTemplate, ObjectSync};
use mcr_testkit::sim::SimCluster;
use serde_json::json;
use tokio::{sync::Notify, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    gate::Gate,
    world::{CLUSTERS, NAMES, SOURCE_CLUSTERS, SYNC, Trouble, World},
};

/// The actions of a history.
const LENGTH: usize = 150;

/// The virtual time for which nothing is written at rest.
const ROUND: Duration = Duration::from_secs(60);

/// The rounds until all is at rest.
const ROUNDS: usize = 20;

pub(crate) struct Played {
    pub(crate) steps: u64,
    pub(crate) writes: u64,
    pub(crate) fault: Option<String>,
}

/// Plays the history of a seed.
pub(crate) async fn play(seed: u64, template: &SimCluster) -> Played {
    let mut history = History::new(seed, template);
    history.start();
    for _ in 0..LENGTH {
        history.act().await;
        if history.world().fault.is_some() {
            break;
        }
    }
    if history.world().fault.is_none()
        && let Err(fault) = history.settle().await
    {
        history.world().fail(fault);
    }
    history.kill().await;
    let world = history.world();
    let fault = world.fault.as_ref();
    Played {
        steps: world.steps,
        writes: world.writes,
        fault: fault.map(|fault| format!("{fault}\n{}", world.told())),
    }
}

struct History {
    world: Arc<Mutex<World>>,
    crashed: Arc<Notify>,
    fleet: ClustersHandle,
    away: BTreeSet<usize>,
    stop: CancellationToken,
    running: Option<JoinHandle<Result<(), ManagerError>>>,
}

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

fn controller(collide: bool, narrow: bool) -> BuiltController {
    let place = |source: &DynamicObject, _: &Cluster, _: &Fleet| {
        let at = source.data["spec"]["at"].as_array().into_iter().flatten();
        at.filter_map(|at| ClusterName::new(at.as_str()?).ok()).collect()
    };
    let mut sync = ObjectSync::<DynamicObject, DynamicObject>::with(SYNC, &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .place(ClusterSelector::label("role", "target"), place)
        .filter(|source| source.data["spec"]["selected"] == true)
        .project(|source, _| {
            let mut target = DynamicObject::new("", &widgets());
            let spec = &source.data["spec"];
            target.data = json!({"spec": {"value": spec["value"], "extra": spec["extra"]}});
            target
        })
        .status(|_, targets| {
            let phase = |target: &DynamicObject| {
                target.data["status"]["phase"]
                    .as_str()
                    .unwrap_or("none")
                    .to_owned()
            };
            let phases = targets
                .iter()
                .map(|(cluster, target)| format!("{cluster}={}", phase(target)));
            json!({"phases": Vec::from_iter(phases).join(",")})
        })
        .condition("Synced")
        .adopt(|found| {
            found
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get("adopt").is_some_and(|yes| yes == "yes"))
        });
    if collide {
        sync = sync.name_by(NameTemplate::parse("{name}").unwrap());
    }
    sync.build_with(|controller| {
        if narrow {
            controller.watch_request(|watch| watch.labels("sync=yes"))
        } else {
            controller
        }
    })
    .unwrap()
}

impl History {
    fn new(seed: u64, template: &SimCluster) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(seed, template))),
            crashed: Arc::new(Notify::new()),
            fleet: ClustersProvider::new().handle(),
            away: BTreeSet::new(),
            stop: CancellationToken::new(),
            running: None,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn below(&self, limit: usize) -> usize {
        self.world().random.below(limit)
    }

    fn note(&self, line: impl Into<String>) {
        self.world().note(line.into());
    }

    fn join(&self, cluster: usize) {
        let client = Gate::client(&self.world, &self.crashed, cluster);
        let role = if cluster < SOURCE_CLUSTERS {
            "source"
        } else {
            "target"
        };
        let spec = ClusterSpec::named(CLUSTERS[cluster], Access::from(client)).unwrap();
        self.fleet.add(spec.label("role", role));
    }

    fn leave(&mut self, cluster: usize) {
        if self.away.insert(cluster) {
            self.fleet.remove(CLUSTERS[cluster]);
        }
    }

    fn come_back(&mut self, cluster: usize) {
        if self.away.remove(&cluster) {
            self.join(cluster);
        }
    }

    /// Starts the program.
    fn start(&mut self) {
        let provider = ClustersProvider::new();
        self.fleet = provider.handle();
        let (collide, narrow) = {
            let mut world = self.world();
            world.program += 1;
            world.crash_in = None;
            (world.collide, world.narrow)
        };
        for cluster in (0..CLUSTERS.len()).filter(|cluster| !self.away.contains(cluster)) {
            self.join(cluster);
        }
        let manager = Manager::builder()
            .provider(provider)
            // The servers are copies of one template, its kube-system included.
            .settings(|settings| settings.allow_duplicates = true)
            .controller(controller(collide, narrow))
            .build()
            .unwrap();
        self.stop = CancellationToken::new();
        self.running = Some(tokio::spawn(manager.run_until(self.stop.clone())));
    }

    /// Stops the program wherever it is.
    async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    async fn restart(&mut self, gracefully: bool) {
        if gracefully {
            self.stop.cancel();
            if let Some(running) = self.running.take() {
                running.await.unwrap().unwrap();
            }
        }
        self.kill().await;
        self.start();
    }

    /// One action, and the time until the next one.
    async fn act(&mut self) {
        let action = self.below(30);
        let mut source = (self.below(SOURCE_CLUSTERS), self.below(NAMES.len()));
        let cluster = self.below(CLUSTERS.len());
        let mut at = SOURCE_CLUSTERS + self.below(CLUSTERS.len() - SOURCE_CLUSTERS);
        if self.below(2) == 0
            && let Some(busy) = self.world().busy()
        {
            (source, at) = busy;
        }
        self.world().steps += 1;
        self.note(format!(
            "action {action}: source {source:?}, cluster {}, target in {}",
            CLUSTERS[cluster], CLUSTERS[at]
        ));
        match action {
            0..=7 => self.world().change_source(action, source),
            8..=15 => self.world().change_target(action - 8, source, at),
            16 => {
                let (sim, name) = {
                    let world = self.world();
                    (world.sims[at].clone(), world.target_name(source))
                };
                let (phase, is_ours) = (self.below(4), self.world().is_ours(at, &name));
                if is_ours {
                    World::set_phase(&sim, &name, phase).await;
                }
            }
            17 => self.leave(cluster),
            18 | 19 => self.come_back(cluster),
            20 => {
                let trouble = [
                    Trouble::Refuses,
                    Trouble::DropsAnswers,
                    Trouble::DropsAnswers,
                    Trouble::Down,
                ][self.below(4)];
                let mut world = self.world();
                world.trouble[cluster] = trouble;
                if trouble == Trouble::Down {
                    world.sims[cluster].end_watches();
                }
            }
            21 | 22 => self.world().trouble[cluster] = Trouble::None,
            23 => self.world().lagging[cluster] = true,
            24 => self.world().lagging[cluster] = false,
            25 => {
                let world = self.world();
                world.sims[cluster].compact(world.sims[cluster].resource_version());
                world.sims[cluster].end_watches();
            }
            26 => {
                let gracefully = self.below(2) == 0;
                self.restart(gracefully).await;
            }
            27..=29 => {
                let writes = self.below(6);
                self.world().crash_in = Some(writes);
            }
            _ => {}
        }
        self.world().check(source);
        let pause = match self.below(20) {
            0 => self.below(30_000),
            1..8 => self.below(200),
            8..14 => self.below(20),
            _ => 0,
        };
        let crashed = self.crashed.clone();
        tokio::select! {
            () = sleep(Duration::from_millis(pause as u64)) => {}
            () = crashed.notified() => {
                self.note("the program ends within a write");
                self.restart(false).await;
            }
        }
    }

    /// Ends all trouble. First everything comes to rest without the clusters that are away, then with them.
    async fn settle(&mut self) -> Result<(), String> {
        self.note("the end of all trouble");
        {
            let mut world = self.world();
            world.trouble = [Trouble::None; 5];
            world.lagging = [false; 5];
            world.unblock();
        }
        if self.world().crash_in.take().is_some_and(|left| left == 0) {
            self.restart(false).await;
        }
        self.rest().await?;
        for cluster in std::mem::take(&mut self.away) {
            self.note(format!("{} is back", CLUSTERS[cluster]));
            self.join(cluster);
        }
        self.rest().await
    }

    /// Waits until all agree and the sync writes nothing any more.
    async fn rest(&self) -> Result<(), String> {
        let mut last = self.world().writes;
        for _ in 0..ROUNDS {
            sleep(ROUND).await;
            let world = self.world();
            if let Some(fault) = &world.fault {
                return Err(fault.clone());
            }
            if std::mem::replace(&mut last, world.writes) == world.writes
                && world.agreement(&self.away).is_ok()
            {
                return Ok(());
            }
        }
        self.world().agreement(&self.away)?;
        Err("it does not come to rest".to_owned())
    }
}
