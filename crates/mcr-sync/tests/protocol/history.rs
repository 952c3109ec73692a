//! One history: its actions, the program under test, and its end.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client, ResourceExt,
    client::Body,
    core::{ApiResource, DynamicObject as Object, Expression, GroupVersionKind},
};
use mcr::{
    Access, BuiltController, ClusterName, ClusterSelector, ClusterSpec, LeaderElection, Manager, ManagerError,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::{NameTemplate, ObjectSync, Related};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken as Token;

use crate::{
    gate::Gate,
    rules::phase,
    world::{CLUSTERS, NAMES, SOURCES, SYNC, Slot, TARGET, TARGETS, Trouble, World, now},
};

/// The actions of a history.
const LENGTH: usize = 150;
/// The virtual time for which nothing is written at rest.
const ROUND: Duration = Duration::from_secs(60);
/// The rounds until all is at rest.
const ROUNDS: usize = 20;

/// Plays the history of a seed. Returns its steps, how many of them are writes of the sync, and the fault if there is one.
pub async fn play(seed: u64, template: &SimCluster) -> (u64, u64, Option<String>) {
    let mut history = History::default();
    *history.world() = World::new(seed, template);
    history.promote();
    for _ in 0..LENGTH {
        if history.world().fault.is_none() {
            history.act().await;
        }
    }
    if let Err(fault) = history.converge().await {
        history.world().fail(fault);
    }
    let programs = std::mem::take(&mut history.leaders).into_iter();
    for program in programs.chain(history.standby.take()) {
        history.end(program, false).await;
    }
    let world = history.world();
    (world.steps, world.writes, world.reported())
}

#[derive(Default)]
struct History {
    world: Arc<Mutex<World>>,
    crashed: Arc<Notify>,
    away: BTreeSet<usize>,
    programs: u64,
    /// Mostly one. The oldest one is the first.
    leaders: Vec<Program>,
    standby: Option<Program>,
}

struct Program {
    number: u64,
    fleet: ClustersHandle,
    stop: Token,
    leads: Token,
    running: JoinHandle<Result<(), ManagerError>>,
}

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

fn controller(world: &World) -> BuiltController {
    let narrow = world.narrow;
    let texts = |list: &Value| {
        let list = list.as_array().cloned().unwrap_or_default().into_iter();
        list.filter_map(|text| Some(text.as_str()?.to_owned()))
    };
    let mut sync = ObjectSync::<Object, Object>::with(SYNC, &widgets(), &widgets())
        .from(ClusterSelector::label("role", "source"))
        .place(ClusterSelector::label("role", "target"), move |source, _, _| {
            let at = texts(&source.data["spec"]["at"]);
            at.filter_map(|at| ClusterName::new(at).ok()).collect()
        })
        .filter(|source| source.data["spec"]["selected"] == true)
        .project(|source, _| {
            let (mut target, spec) = (Object::new("", &widgets()), &source.data["spec"]);
            target.data = json!({"spec": {"value": spec["value"], "extra": spec["extra"]}});
            target
        })
        .status(|_, targets| {
            let targets = targets.iter();
            let phases = targets.map(|(at, target)| format!("{at}={}", phase(&target.data["status"])));
            json!({"phases": Vec::from_iter(phases).join(",")})
        })
        .condition("Synced")
        .adopt(|found| found.labels().get("adopt").is_some_and(|yes| yes == "yes"));
    if world.collide {
        sync = sync.name_by(NameTemplate::parse("{name}").unwrap());
    }
    if world.related {
        let named = move |source: &Object, _: Option<&Object>| texts(&source.data["spec"]["settings"]);
        let settings = Related::down("settings").named(named);
        let name = |source: &Object, it: &ConfigMap| it.name_any() + "-" + &source.labels()["home"];
        let key = Related::up("key")
            .labelled(|_: &Object, target: Option<&Object>| Some(("for", target?.name_any())))
            .name_by(|_, origin: &ConfigMap| origin.labels()["copy"].clone());
        sync = sync.related(settings.name_by(name)).related(key);
    }
    if world.labelled {
        sync = sync.source_labels(Expression::Equal("pick".into(), "yes".into()));
    }
    let built = sync.build_with(|controller| {
        if narrow {
            controller.watch_request(|watch| watch.labels("sync=yes"))
        } else {
            controller
        }
    });
    built.unwrap()
}

impl History {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn below(&self, limit: usize) -> usize {
        self.world().random.below(limit)
    }

    fn note(&self, line: impl Into<String>) {
        self.world().note(line.into());
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.leaders.iter().chain(&self.standby)
    }

    fn join(&self, program: &Program, cluster: usize) {
        let client = Gate::client(&self.world, &self.crashed, cluster, program.number);
        let role = ["source", "target"][usize::from(TARGETS.contains(&cluster))];
        let spec = ClusterSpec::named(CLUSTERS[cluster], Access::from(client)).unwrap();
        program.fleet.add(spec.label("role", role));
    }

    fn leave(&mut self, cluster: usize) {
        if self.away.insert(cluster) {
            for program in self.programs() {
                program.fleet.remove(CLUSTERS[cluster]);
            }
        }
    }

    fn come_back(&mut self, cluster: usize) {
        if self.away.remove(&cluster) {
            self.programs().for_each(|program| self.join(program, cluster));
        }
    }

    /// The election of a program. It has a Lease of its own, which is free, and gets no answer until it is to lead.
    fn election(&self, name: String, leads: Token) -> LeaderElection {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}});
        let hub = self.world().sims[0].clone();
        hub.create(lease).unwrap();
        let service = hub.service().with_token(&hub.admin_token());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (leads, service) = (leads.clone(), service.clone());
            async move {
                leads.cancelled().await;
                Ok::<_, Infallible>(service.answer(request).await)
            }
        });
        // Longer than any history: the clock of an election is not paused.
        let [retry, deadline, lease] = [1, 4, 5].map(|parts| Duration::from_secs(parts * 100_000));
        let election = LeaderElection::new(name).client(Client::new(service, "default"));
        let election = election.lease_duration(lease).renew_deadline(deadline);
        election.retry_period(retry)
    }

    /// Starts a program. It is a standby until it is promoted.
    fn begin(&mut self) -> Program {
        self.programs += 1;
        let (number, provider) = (self.programs, ClustersProvider::new());
        let (fleet, leads, stop) = (provider.handle(), Token::new(), Token::new());
        self.world().alive.insert(number);
        let election = self.election(format!("program-{number}"), leads.clone());
        let manager = Manager::builder()
            .provider(provider)
            // The servers are copies of one template, its kube-system included.
            .settings(|settings| settings.allow_duplicates = true)
            .controller(controller(&self.world()))
            .leader_election(election)
            .build();
        let running = tokio::spawn(manager.unwrap().run_until(stop.clone()));
        let program = Program {
            number,
            fleet,
            stop,
            leads,
            running,
        };
        let here = (0..CLUSTERS.len()).filter(|cluster| !self.away.contains(cluster));
        here.for_each(|cluster| self.join(&program, cluster));
        program
    }

    /// Lets the standby lead, or else a new program.
    fn promote(&mut self) {
        let next = self.standby.take().unwrap_or_else(|| self.begin());
        self.note(format!("program {} leads", next.number));
        self.world().leads.insert(next.number, now());
        next.leads.cancel();
        self.leaders.push(next);
    }

    /// Ends a program, wherever it is or at its own pace.
    async fn end(&mut self, program: Program, gracefully: bool) {
        self.note(format!("program {} ends", program.number));
        if gracefully {
            program.stop.cancel();
            program.running.await.unwrap().unwrap();
        } else {
            program.running.abort();
            let _ = program.running.await;
        }
        self.world().alive.remove(&program.number);
    }

    /// Ends the oldest leader.
    async fn hand_over(&mut self, gracefully: bool) {
        let oldest = self.leaders.remove(0);
        self.end(oldest, gracefully).await;
        self.reap().await;
    }

    /// Ends the programs that have stopped within a write. Another one goes on.
    async fn reap(&mut self) {
        let alive = self.world().alive.clone();
        let leaders = std::mem::take(&mut self.leaders).into_iter();
        let (leaders, stopped): (Vec<_>, Vec<_>) = leaders.partition(|leader| alive.contains(&leader.number));
        self.leaders = leaders;
        for program in stopped {
            self.end(program, false).await;
        }
        if self.leaders.is_empty() {
            self.promote();
        }
    }

    /// One action, and the time until the next one.
    async fn act(&mut self) {
        let action = self.below(if self.world().related { 40 } else { 32 });
        let mut source = (self.below(SOURCES.len()), self.below(NAMES.len()));
        let cluster = self.below(CLUSTERS.len());
        let mut at = TARGETS.start + self.below(TARGETS.len());
        if self.below(2) == 0
            && let Some(busy) = self.world().busy()
        {
            (source, at) = busy;
        }
        self.world().steps += 1;
        let (name, to) = (CLUSTERS[cluster], CLUSTERS[at]);
        self.note(format!("action {action}: {source:?} to {to}, cluster {name}"));
        match action {
            0..=7 => self.world().change_source(action, source),
            8..=16 => self
                .world()
                .change_made(action - 8, Slot::new(source, at, TARGET)),
            17 => self.leave(cluster),
            18 | 19 => self.come_back(cluster),
            20 => {
                let trouble = [Trouble::Refuses, Trouble::DropsAnswers, Trouble::Down][self.below(3)];
                let mut world = self.world();
                world.trouble[cluster] = trouble;
                world.sims[cluster].end_watches();
            }
            21 | 22 => self.world().trouble[cluster] = Trouble::None,
            23 | 24 => {
                let program = self.below(2);
                self.world().lagging[program][cluster] = action == 23;
            }
            25 => {
                let world = self.world();
                world.sims[cluster].compact(world.sims[cluster].resource_version());
                world.sims[cluster].end_watches();
            }
            26 => self.hand_over(cluster.is_multiple_of(2)).await,
            27..=29 => {
                let writes = self.below(6);
                self.world().crash_in = Some(writes);
            }
            30 if self.standby.is_none() => self.standby = Some(self.begin()),
            // A former leader goes on for a while.
            31 if self.leaders.len() == 1 => self.promote(),
            31 => self.hand_over(false).await,
            32.. => self.world().change_related(source, at),
            _ => {}
        }
        self.world().check_all(source);
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
                self.note("a program ends within a write");
                self.reap().await;
            }
        }
    }

    /// Ends all trouble. First everything comes to rest without the clusters that are away, then with them.
    async fn converge(&mut self) -> Result<(), String> {
        self.note("the end of all trouble");
        self.world().unblock();
        self.reap().await;
        while self.leaders.len() > 1 {
            self.hand_over(false).await;
        }
        self.rest().await?;
        for cluster in self.away.clone() {
            self.come_back(cluster);
        }
        self.rest().await
    }

    /// Waits until all agree and the sync writes nothing any more.
    async fn rest(&self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            let writes = self.world().writes;
            sleep(ROUND).await;
            let world = self.world();
            let is_done = world.writes == writes && world.agreement(&self.away).is_ok();
            if is_done || world.fault.is_some() {
                return Ok(());
            }
        }
        self.world().agreement(&self.away)?;
        Err("it does not come to rest".to_owned())
    }
}
