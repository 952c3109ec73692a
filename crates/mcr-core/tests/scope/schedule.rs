//! Any schedule of what shards do, what becomes of their endpoints, and what a provider says of the clusters ends
//! with every store as its shard, and with nothing told that was not so.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcr_core::{FleetEvent, Scope};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

use mcr_doubles::shard::Shard;

use crate::{
    harness::*,
    witness::Witness,
    workspaces::{WORKSPACES, access},
};

const CLUSTERS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const ENDPOINTS: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone)]
enum Step {
    Bind(usize),
    Unbind(usize),
    Put(usize, u8, u8),
    Delete(usize, u8),
    Announce(usize),
    Remove(usize),
    /// Something runs for the cluster for so long, also if it leaves meanwhile.
    Work(usize, u64),
    /// To the other shard, with all that is in it. The old shard cleans up before or after the provider notices the move.
    Move(usize, bool),
    /// The provider names the other endpoint and then the right one again.
    Waver(usize),
    Down(usize),
    Up(usize),
    Expire(usize),
    EndWatches(usize),
    KillWatches(usize),
    Mute(usize, bool),
    FailLists(usize, bool),
    RemoveEndpoint(usize),
    SetEndpoint(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let cluster = 0..CLUSTERS.len();
    let shard = 0..ENDPOINTS.len();
    prop_oneof![
        3 => cluster.clone().prop_map(Step::Bind),
        1 => cluster.clone().prop_map(Step::Unbind),
        6 => (cluster.clone(), 0..3u8, any::<u8>()).prop_map(|(c, n, v)| Step::Put(c, n, v)),
        3 => (cluster.clone(), 0..3u8).prop_map(|(c, n)| Step::Delete(c, n)),
        4 => cluster.clone().prop_map(Step::Announce),
        1 => cluster.clone().prop_map(Step::Remove),
        2 => (cluster.clone(), 0..15_000u64).prop_map(|(c, millis)| Step::Work(c, millis)),
        3 => (cluster.clone(), any::<bool>()).prop_map(|(c, early)| Step::Move(c, early)),
        1 => cluster.prop_map(Step::Waver),
        1 => shard.clone().prop_map(Step::Down),
        1 => shard.clone().prop_map(Step::Up),
        1 => shard.clone().prop_map(Step::Expire),
        1 => shard.clone().prop_map(Step::EndWatches),
        1 => shard.clone().prop_map(Step::KillWatches),
        1 => (shard.clone(), any::<bool>()).prop_map(|(s, on)| Step::Mute(s, on)),
        1 => (shard.clone(), any::<bool>()).prop_map(|(s, on)| Step::FailLists(s, on)),
        1 => shard.clone().prop_map(Step::RemoveEndpoint),
        1 => shard.prop_map(Step::SetEndpoint),
        // Many things happen at once, some within a second, and some after all pauses.
        6 => prop_oneof![0..30u64, 0..2_000u64, 0..60_000u64].prop_map(Step::Wait),
    ]
}

struct World {
    running: Running,
    scope: Scope,
    shards: [Shard; 2],
    /// How each shard is reached, always the same way.
    access: [mcr_core::Access; 2],
    /// Where each cluster lives, and whether it is bound there and announced.
    homes: [usize; CLUSTERS.len()],
    bound: [bool; CLUSTERS.len()],
    announced: [bool; CLUSTERS.len()],
    /// By cluster; the last one is that of the cluster there is.
    witnesses: Arc<Mutex<BTreeMap<String, Vec<Witness>>>>,
    follower: tokio::task::JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        let running = Running::start_with(|settings| {
            Arc::make_mut(&mut settings.watch).watch_timeout = Duration::from_secs(20);
        });
        let shards = [Shard::new("a", 1_000), Shard::new("b", 100)];
        let access = [access(&shards[0]), access(&shards[1])];
        let witnesses = Arc::<Mutex<BTreeMap<String, Vec<Witness>>>>::default();
        let follower = tokio::spawn({
            let (mut events, witnesses) = (running.fleet.subscribe(), witnesses.clone());
            let shards = shards.to_vec();
            async move {
                loop {
                    if let FleetEvent::Engaged(cluster) = events.next().await
                        && !cluster.token().is_cancelled()
                    {
                        let witness = Witness::watchful(&cluster, shards.clone());
                        let mut all = witnesses.lock().unwrap();
                        all.entry(cluster.name().to_string()).or_default().push(witness);
                    }
                }
            }
        });
        Self {
            running,
            scope: Scope::new(WORKSPACES),
            shards,
            access,
            homes: [0, 0, 1, 1],
            bound: [false; CLUSTERS.len()],
            announced: [false; CLUSTERS.len()],
            witnesses,
            follower,
        }
    }

    fn home(&self, cluster: usize) -> &Shard {
        &self.shards[self.homes[cluster]]
    }

    fn announce(&self, cluster: usize, endpoint: usize) {
        let spec = spec(&self.scope, ENDPOINTS[endpoint], CLUSTERS[cluster]);
        self.running.clusters.add(spec);
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Bind(c) => {
                self.home(c).bind(CLUSTERS[c]);
                self.bound[c] = true;
            }
            Step::Unbind(c) => {
                self.home(c).unbind(CLUSTERS[c]);
                self.bound[c] = false;
            }
            Step::Put(c, n, v) if self.bound[c] => {
                self.home(c).put(CLUSTERS[c], "n", &n.to_string(), &v.to_string());
            }
            Step::Delete(c, n) => self.home(c).delete(CLUSTERS[c], "n", &n.to_string()),
            Step::Put(..) => {}
            Step::Announce(c) => {
                self.announced[c] = true;
                self.announce(c, self.homes[c]);
            }
            Step::Remove(c) => {
                self.announced[c] = false;
                self.home(c).forgive(CLUSTERS[c]);
                self.running.clusters.remove(&name(CLUSTERS[c]));
            }
            Step::Work(c, millis) => {
                if let Ok(cluster) = self.running.fleet.get(CLUSTERS[c]) {
                    cluster.spawn(tokio::time::sleep(Duration::from_millis(millis)));
                }
            }
            Step::Move(c, early) if self.bound[c] => {
                // So that it is a cluster that moves.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let (from, to) = (self.homes[c], 1 - self.homes[c]);
                self.shards[to].adopt(CLUSTERS[c], &self.shards[from]);
                self.homes[c] = to;
                if early && self.announced[c] && self.scope.endpoints().len() == ENDPOINTS.len() {
                    self.shards[from].unbind(CLUSTERS[c]);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                if self.announced[c] {
                    self.announce(c, to);
                    // The shard it leaves still has it until everyone knows.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                } else {
                    self.home(c).forgive(CLUSTERS[c]);
                }
                self.shards[from].unbind(CLUSTERS[c]);
            }
            Step::Move(..) => {}
            Step::Waver(c) if self.announced[c] => {
                self.announce(c, 1 - self.homes[c]);
                self.announce(c, self.homes[c]);
            }
            Step::Waver(_) => {}
            Step::Down(s) => self.shards[s].be_down(true),
            Step::Up(s) => self.shards[s].be_down(false),
            Step::Expire(s) => self.shards[s].expire(),
            Step::EndWatches(s) => self.shards[s].end_watches(),
            Step::KillWatches(s) => self.shards[s].kill_watches(),
            Step::Mute(s, on) => self.shards[s].be_mute(on),
            Step::FailLists(s, on) => self.shards[s].fail_lists(on),
            Step::RemoveEndpoint(s) => self.scope.remove_endpoint(ENDPOINTS[s]),
            Step::SetEndpoint(s) => self.scope.set_endpoint(ENDPOINTS[s], self.access[s].clone()),
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }

    fn faults(&self) -> Vec<String> {
        let witnesses = self.witnesses.lock().unwrap();
        witnesses.values().flatten().flat_map(Witness::faults).collect()
    }

    /// Everything works again, and every cluster is announced where it is.
    async fn mend(&mut self) {
        for s in 0..ENDPOINTS.len() {
            for step in [
                Step::Up(s),
                Step::Mute(s, false),
                Step::FailLists(s, false),
                Step::SetEndpoint(s),
            ] {
                self.take(&step).await;
            }
            self.shards[s].bind("anchor");
        }
        for c in 0..CLUSTERS.len() {
            self.take(&Step::Bind(c)).await;
            self.take(&Step::Announce(c)).await;
        }
    }

    async fn converges(&self) {
        let started = tokio::time::Instant::now();
        loop {
            let differences: Vec<String> = {
                let witnesses = self.witnesses.lock().unwrap();
                let difference = |c: usize| match witnesses.get(CLUSTERS[c]).and_then(|all| all.last()) {
                    Some(last) => last.difference(self.home(c)),
                    None => Some(format!("{} was never there", CLUSTERS[c])),
                };
                (0..CLUSTERS.len()).filter_map(difference).collect()
            };
            if differences.is_empty() {
                return;
            }
            assert!(
                started.elapsed() < Duration::from_secs(180),
                "{}\n{:#?}",
                differences.join("\n"),
                self.running.fleet.scopes()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ends_with_nothing(self) {
        self.follower.abort();
        for cluster in CLUSTERS {
            self.running.clusters.remove(&name(cluster));
        }
        eventually(Duration::from_secs(60), "all have left", || {
            self.running.fleet.snapshot().clusters.is_empty()
        })
        .await;
        assert_eq!(self.running.fleet.scopes().len(), 0);
        self.running.stop().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/scope.txt"
        )))),
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_schedule_ends_with_every_store_as_its_shard(steps in prop::collection::vec(step(), 0..60)) {
        paused(|| async move {
            let mut world = World::new();
            for step in &steps {
                world.take(step).await;
                assert_eq!(world.faults(), [""; 0], "after {step:?}");
            }
            world.mend().await;
            world.converges().await;
            assert_eq!(world.faults(), [""; 0]);
            world.ends_with_nothing().await;
        });
    }

    #[test]
    fn a_fleet_of_scopes_can_be_stopped_at_any_moment(steps in prop::collection::vec(step(), 0..30)) {
        paused(|| async move {
            let mut world = World::new();
            for step in &steps {
                world.take(step).await;
            }
            world.follower.abort();
            world.running.stop().await;
        });
    }
}
