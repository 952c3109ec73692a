//! Any schedule of children and clusters that come, go and fail, against a listener that does what a fleet does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use mcr_core::{Change, Discovery, Provider};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::MultiProvider;
use proptest::prelude::*;
use support::{name, spec};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

const CHILDREN: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Step {
    AddCluster(usize, u8),
    BreakCluster(usize, u8),
    RemoveCluster(usize, u8),
    AddChild(usize),
    RemoveChild(usize),
    /// The child's source is gone, or back.
    Switch(usize, bool),
    /// The child's discovery fails and may start again.
    Cut(usize),
    /// The same, and most of its clusters are gone meanwhile.
    Lose(usize),
    /// The discovery of all children ends and another begins.
    Restart,
    Listen(u64),
    /// Receives one change only.
    Receive,
}

fn step() -> impl Strategy<Value = Step> {
    let child = 0..CHILDREN.len();
    prop_oneof![
        4 => (child.clone(), 1..5u8).prop_map(|(c, n)| Step::AddCluster(c, n)),
        1 => (child.clone(), 1..5u8).prop_map(|(c, n)| Step::BreakCluster(c, n)),
        3 => (child.clone(), 1..5u8).prop_map(|(c, n)| Step::RemoveCluster(c, n)),
        2 => child.clone().prop_map(Step::AddChild),
        1 => child.clone().prop_map(Step::RemoveChild),
        2 => (child.clone(), any::<bool>()).prop_map(|(c, off)| Step::Switch(c, off)),
        2 => child.clone().prop_map(Step::Cut),
        1 => child.prop_map(Step::Lose),
        1 => Just(Step::Restart),
        4 => (0..50u64).prop_map(Step::Listen),
        2 => Just(Step::Receive),
    ]
}

/// Clusters that the test adds and removes, and a discovery that it can make fail.
#[derive(Clone, Default)]
struct Source {
    clusters: ClustersProvider,
    off: Arc<AtomicBool>,
    cut: Arc<Notify>,
}

impl Provider for Source {
    fn name(&self) -> &str {
        "source"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let failed = stream::iter([Err("cut off".into())]);
        if self.off.load(Ordering::SeqCst) {
            return failed.boxed();
        }
        let cut = self.cut.clone().notified_owned();
        self.clusters.discover(stop).take_until(cut).chain(failed).boxed()
    }
}

/// A fleet without its grace and its hold.
#[derive(Default)]
struct Listener {
    clusters: BTreeMap<String, u64>,
    round: u64,
    syncs: usize,
}

impl Listener {
    fn receive(&mut self, change: Change) {
        match change {
            Change::Upsert(spec) => drop(self.clusters.insert(spec.name.to_string(), self.round)),
            Change::Broken(broken) => drop(self.clusters.insert(broken.name.to_string(), self.round)),
            Change::Remove(name) => drop(self.clusters.remove(name.as_str())),
            Change::Synced => {
                self.syncs += 1;
                let round = self.round;
                self.clusters.retain(|_, named| *named == round);
            }
            other => panic!("{other:?}"),
        }
    }
}

struct World {
    multi: MultiProvider,
    sources: Vec<Source>,
    discovery: Discovery,
    listener: Listener,
    /// Clusters that their child has had since it was added, once they were announced.
    converged: BTreeSet<String>,
    /// Names of removed children whose removals are pending.
    leaving: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let multi = MultiProvider::builder().build().unwrap();
        let sources = CHILDREN.map(|_| Source::default());
        for source in &sources {
            source.clusters.handle().add(spec("always"));
        }
        let discovery = multi.discover(CancellationToken::new());
        Self {
            multi,
            sources: sources.into(),
            discovery,
            listener: Listener::default(),
            converged: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    fn begin(&mut self) {
        self.discovery = stream::pending().boxed();
        self.discovery = self.multi.discover(CancellationToken::new());
        self.listener.round += 1;
        self.listener.syncs = 0;
    }

    async fn listen(&mut self, seconds: u64, at_most: usize) {
        let end = Instant::now() + Duration::from_secs(seconds);
        for _ in 0..at_most {
            match timeout_at(end, self.discovery.next()).await {
                Ok(item) => self.listener.receive(item.expect("the discovery goes on").unwrap()),
                Err(_) => {
                    self.leaving.clear();
                    break;
                }
            }
            self.check();
        }
    }

    fn check(&mut self) {
        assert!(self.listener.syncs <= 1, "Synced is announced once");
        for child in self.multi.handle().names() {
            let always = format!("{child}#always");
            if self.leaving.contains(&*child) {
                continue;
            }
            if self.listener.clusters.contains_key(&always) {
                self.converged.insert(always);
            } else {
                assert!(!self.converged.contains(&always), "{always} was removed");
            }
        }
    }

    async fn step(&mut self, step: Step) {
        let children = self.multi.handle();
        let cluster = |n: u8| n.to_string();
        match step {
            Step::AddCluster(c, n) => drop(self.sources[c].clusters.handle().add(spec(&cluster(n)))),
            Step::BreakCluster(c, n) => {
                let clusters = self.sources[c].clusters.handle();
                clusters.broken(name(&cluster(n)), "row 7", "no address");
            }
            Step::RemoveCluster(c, n) => drop(self.sources[c].clusters.handle().remove(&name(&cluster(n)))),
            Step::AddChild(c) => drop(children.add_as(CHILDREN[c], self.sources[c].clone())),
            Step::RemoveChild(c) => {
                children.remove(CHILDREN[c]);
                self.converged.remove(&format!("{}#always", CHILDREN[c]));
                // A child that takes the name does not lose the pending removals of this one.
                self.leaving.insert(CHILDREN[c].into());
            }
            Step::Switch(c, off) => {
                self.sources[c].off.store(off, Ordering::SeqCst);
                if off {
                    self.sources[c].cut.notify_waiters();
                }
            }
            Step::Cut(c) => self.sources[c].cut.notify_waiters(),
            Step::Lose(c) => {
                self.sources[c].cut.notify_waiters();
                for n in 1..5 {
                    self.sources[c].clusters.handle().remove(&name(&cluster(n)));
                }
            }
            Step::Restart => self.begin(),
            Step::Listen(seconds) => self.listen(seconds, usize::MAX).await,
            Step::Receive => self.listen(0, 1).await,
        }
    }

    /// All sources come back, and time passes: now what is announced is what there is.
    async fn converge(&mut self) {
        for source in &self.sources {
            source.off.store(false, Ordering::SeqCst);
        }
        self.listen(600, usize::MAX).await;
        // Each child announces once more all that it has, and what it does not name has its grace.
        for source in &self.sources {
            source.cut.notify_waiters();
        }
        self.listen(600, usize::MAX).await;
        let children = self.multi.handle();
        for (child, source) in CHILDREN.iter().zip(&self.sources) {
            let Some(status) = children.status(child) else {
                continue;
            };
            let (had, lost) = (
                status.clusters,
                status.clusters - source.clusters.handle().names().len(),
            );
            let much = lost >= 2 && lost * 2 > had;
            assert!(
                lost == 0 || much,
                "what is lost has gone, unless it is much: {status:?}"
            );
            assert_eq!(status.held, lost, "what is lost and there is held: {status:?}");
        }
        for child in children.names() {
            children.release_held(&child);
        }
        self.listen(600, usize::MAX).await;
        assert_eq!(self.listener.syncs, 1);

        let mut there = BTreeSet::new();
        for (child, source) in CHILDREN.iter().zip(&self.sources) {
            let known = source.clusters.handle().names();
            if let Some(status) = children.status(child) {
                assert_eq!((status.clusters, status.held), (known.len(), 0), "{status:?}");
                there.extend(known.iter().map(|cluster| format!("{child}#{cluster}")));
            }
        }
        let received: BTreeSet<String> = self.listener.clusters.keys().cloned().collect();
        assert_eq!(received, there);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_what_is_known_ends_as_what_there_is(steps in prop::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.step(step).await;
            }
            world.converge().await;
        });
    }
}
