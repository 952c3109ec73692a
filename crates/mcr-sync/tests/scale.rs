//! A sync of 10,000 sources in 500 clusters: a restart, and a burst of edits.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, WatchEvent, WatchParams};
use mcr::{Access, ClusterName, ClusterSelector, ClusterSpec, Manager, ManagerError};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::{ObjectSync, SourceName, hashed};
use mcr_testkit::{
    sim::{SimAuditMark, SimCluster},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};

const CLUSTERS: usize = 500;
const OBJECTS: usize = 20;
const EDITS: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(500);

/// The source clusters, their target cluster, and the highest counter of each source.
struct World {
    sources: Vec<SimCluster>,
    target: SimCluster,
    counters: BTreeMap<(usize, usize), usize>,
}

/// A running sync, and the keys of the sources that it has found as they should be.
struct Program {
    running: Background<Result<(), ManagerError>>,
    settled: Arc<Mutex<HashSet<(String, String)>>>,
}

impl World {
    fn new() -> Self {
        let builder = || {
            SimCluster::builder()
                .managed_fields(false)
                .history(100_000)
                .audit_limit(100_000)
        };
        let template = builder().build();
        for at in 0..OBJECTS {
            template.create(quota(at, 0)).unwrap();
        }
        let source = |at| {
            builder()
                .name(format!("source-{at:03}"))
                .template(&template)
                .build()
        };
        Self {
            sources: (0..CLUSTERS).map(source).collect(),
            target: builder().name("target").build(),
            counters: (0..CLUSTERS)
                .flat_map(|cluster| (0..OBJECTS).map(move |object| ((cluster, object), 0)))
                .collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &SimCluster> {
        self.sources.iter().chain([&self.target])
    }

    fn start(&self) -> Program {
        let provider = ClustersProvider::new();
        let clusters = provider.handle();
        for cluster in self.all() {
            let access = Access::from(cluster.client());
            clusters.add(ClusterSpec::named(cluster.name(), access).unwrap());
        }
        let settled = Arc::<Mutex<HashSet<_>>>::default();
        let seen = settled.clone();
        let controller = ObjectSync::<ResourceQuota, ResourceQuota>::new("quotas")
            .from(!ClusterSelector::name("target"))
            .to(ClusterName::new("target").unwrap())
            .filter(|quota| counter(quota).is_some())
            .mirror()
            // It is asked only about a source whose target exists, after all its writes. Null is no status, so none is written.
            .status(
                move |_: &ResourceQuota, targets: &[(ClusterName, ResourceQuota)]| {
                    let target = targets[0].1.metadata.annotations.as_ref().unwrap();
                    let source = |part: &str| target[&format!("sync.mcr.dev/source-{part}")].clone();
                    seen.lock().unwrap().insert((source("cluster"), source("name")));
                    Value::Null
                },
            )
            .build()
            .unwrap();
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .unwrap();
        let running = Background::start(|stop| manager.run_until(stop));
        Program { running, settled }
    }

    fn marks(&self) -> Vec<SimAuditMark> {
        self.all().map(|cluster| cluster.audit().mark()).collect()
    }

    /// The writes of the program since these marks.
    fn writes(&self, marks: &[SimAuditMark]) -> usize {
        assert!(self.all().all(|cluster| cluster.audit().forgotten() == 0));
        let is_write = |verb: &str| !["get", "list", "watch"].contains(&verb);
        let logs = self
            .all()
            .zip(marks)
            .map(|(cluster, mark)| cluster.audit().since(*mark));
        logs.map(|log| log.count(|event| is_write(&event.verb))).sum()
    }

    fn target_of(&self, (cluster, object): (usize, usize)) -> String {
        let cluster = self.sources[cluster].name();
        let (namespace, name) = (Some("default"), &format!("quota-{object:02}"));
        format!(
            "default/{}",
            hashed(SourceName {
                cluster,
                namespace,
                name
            })
        )
    }

    /// Waits until every target has the last counter of its source.
    async fn converged(&self) {
        let mut open: Vec<_> = self.counters.iter().collect();
        let is_right = |(source, counter): &(&(usize, usize), &usize)| {
            let target = self.target.get("resourcequotas", &self.target_of(**source));
            target.is_some_and(|target| target["spec"]["hard"]["counter"] == counter.to_string())
        };
        eventually(LIMIT, "all targets as their sources", || {
            while open.last().is_some_and(is_right) {
                open.pop();
            }
            open.is_empty().then_some(())
        })
        .await;
    }

    /// Edits sources that chance selects. Each edit raises the counter of its source.
    async fn burst(&mut self) {
        let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
        for edit in 0..EDITS {
            // The generator xorshift64.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = usize::try_from(random >> 16).unwrap();
            let key = (number % CLUSTERS, number / CLUSTERS % OBJECTS);
            let counter = self.counters.get_mut(&key).unwrap();
            *counter += 1;
            let source = &self.sources[key.0];
            let mut live = source
                .get("resourcequotas", &format!("default/quota-{:02}", key.1))
                .unwrap();
            live["spec"]["hard"]["counter"] = counter.to_string().into();
            source.update(live).unwrap();
            if edit % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The counters of each target in the order of its writes after this version.
    async fn history(&self, version: u64) -> BTreeMap<String, Vec<usize>> {
        let quotas: Api<ResourceQuota> = Api::all(self.target.client());
        let last = self.target.resource_version();
        let watch = quotas
            .watch(&WatchParams::default(), &version.to_string())
            .await
            .unwrap();
        let mut watch = std::pin::pin!(watch);
        let mut found = BTreeMap::<_, Vec<usize>>::new();
        while let Some(event) = watch.try_next().await.unwrap() {
            let (WatchEvent::Added(quota) | WatchEvent::Modified(quota)) = event else {
                panic!("the target cluster has seen {event:?}");
            };
            let counter = counter(&quota).unwrap();
            found
                .entry(quota.metadata.name.unwrap())
                .or_default()
                .push(counter);
            if quota.metadata.resource_version.unwrap().parse() == Ok(last) {
                break;
            }
        }
        found
    }
}

/// A kind of every cluster that has the status subresource.
fn quota(at: usize, counter: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": format!("quota-{at:02}"), "namespace": "default"},
        "spec": {"hard": {"counter": counter.to_string()}},
    })
}

fn counter(quota: &ResourceQuota) -> Option<usize> {
    quota.spec.as_ref()?.hard.as_ref()?.get("counter")?.0.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_500_clusters_restart_without_a_write_and_a_burst_of_edits_is_never_seen_backwards() {
    let mut world = World::new();
    let program = world.start();
    world.converged().await;
    program.running.stop().await.unwrap();

    let marks = world.marks();
    let program = world.start();
    eventually(LIMIT, "every source is looked at again", || {
        let settled = program.settled.lock().unwrap().len();
        (settled == CLUSTERS * OBJECTS).then_some(())
    })
    .await;
    assert_eq!(world.writes(&marks), 0, "writes after a restart");

    let version = world.target.resource_version();
    world.burst().await;
    world.converged().await;
    program.running.stop().await.unwrap();
    let history = world.history(version).await;
    for (name, counters) in &history {
        assert!(counters.is_sorted(), "{name} had the counters {counters:?}");
    }
}
