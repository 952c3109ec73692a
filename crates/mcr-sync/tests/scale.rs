//! A sync of 2,000 sources in 500 clusters: a restart, and a burst of edits.
#![allow(clippy::unwrap_used)]

mod world;

use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, WatchEvent, WatchParams};
use mcr::{Access, ClusterName, ClusterSelector, ClusterSpec, Manager, ManagerError};
use mcr_provider_clusters::ClustersProvider;
use mcr_sync::ObjectSync;
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::{Value, json};

use crate::world::{change, key, writes};

const CLUSTERS: usize = 500;
const OBJECTS: usize = 4;
const EDITS: usize = 4_000;
const LIMIT: Duration = Duration::from_secs(500);
const QUOTAS: &str = "resourcequotas";

/// The source clusters and their target cluster. The number of a source is that of its cluster, and then its own.
struct World {
    sources: Vec<SimCluster>,
    target: SimCluster,
    /// The targets of the sources that a running sync has found as they should be.
    read_again: Arc<Mutex<HashSet<Option<String>>>>,
}

fn name(source: usize) -> String {
    format!("quota-{:02}", source % OBJECTS)
}

impl World {
    fn new() -> Self {
        let builder = || SimCluster::builder().managed_fields(false).history(100_000);
        let builder = || builder().audit_limit(100_000);
        let template = builder().build();
        for source in 0..OBJECTS {
            // A kind of every cluster that has the status subresource.
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"counter": "0"}},
                "metadata": {"name": name(source), "namespace": "default"},
            });
            template.create(quota).unwrap();
        }
        let from_template = |name| builder().name(name).template(&template).build();
        let names = (0..CLUSTERS).map(|at| format!("source-{at:03}"));
        Self {
            sources: names.map(from_template).collect(),
            target: builder().name("target").build(),
            read_again: Arc::default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &SimCluster> {
        self.sources.iter().chain([&self.target])
    }

    fn start(&self) -> Background<Result<(), ManagerError>> {
        let provider = ClustersProvider::new();
        for cluster in self.all() {
            let spec = ClusterSpec::named(cluster.name(), Access::from(cluster.client()));
            provider.handle().add(spec.unwrap());
        }
        self.read_again.lock().unwrap().clear();
        let read_again = self.read_again.clone();
        let sync = ObjectSync::<ResourceQuota, ResourceQuota>::new("quotas")
            .from(!ClusterSelector::name("target"))
            .to(ClusterName::new("target").unwrap())
            .mirror()
            // It is asked only about a source whose target exists, after all its writes. Null is no status, so none is written.
            .status(move |_, targets: &[(ClusterName, ResourceQuota)]| {
                let target = targets[0].1.metadata.name.clone();
                read_again.lock().unwrap().insert(target);
                Value::Null
            });
        let manager = Manager::builder()
            .provider(provider)
            .controller(sync.build().unwrap());
        let manager = manager.build().unwrap();
        Background::start(|stop| manager.run_until(stop))
    }

    /// The writes of the programs so far.
    fn all_writes(&self) -> usize {
        assert!(self.all().all(|cluster| cluster.audit().forgotten() == 0));
        self.all().map(writes).sum()
    }

    fn has(&self, source: usize, counter: usize) -> bool {
        let key = key(self.sources[source / OBJECTS].name(), &name(source));
        let target = self.target.get(QUOTAS, &key).unwrap_or_default();
        target["spec"]["hard"]["counter"].as_str() == Some(&*counter.to_string())
    }

    /// Waits until every target has the counter of its source.
    async fn converged(&self, counters: &[usize]) {
        let mut open = counters.iter().enumerate().peekable();
        let converged = || {
            while open.next_if(|(source, n)| self.has(*source, **n)).is_some() {}
            open.peek().is_none()
        };
        eventually(LIMIT, "all targets as their sources", converged).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_500_clusters_restart_without_a_write_and_a_burst_of_edits_is_never_seen_backwards() {
    let world = World::new();
    let mut counters = vec![0; CLUSTERS * OBJECTS];
    let running = world.start();
    world.converged(&counters).await;
    running.stop().await.unwrap();

    let writes = world.all_writes();
    let running = world.start();
    let read_again = || world.read_again.lock().unwrap().len() == counters.len();
    eventually(LIMIT, "every source is observed again", read_again).await;
    assert_eq!(world.all_writes(), writes, "writes after a restart");

    // Each edit raises the counter of a source that chance selects.
    let version = world.target.resource_version().to_string();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for edit in 0..EDITS {
        // The generator xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let source = usize::try_from(random >> 16).unwrap() % counters.len();
        counters[source] += 1;
        let cluster = &world.sources[source / OBJECTS];
        let counter = counters[source].to_string().into();
        change(cluster, QUOTAS, &name(source), "/spec/hard/counter", counter);
        if edit % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    world.converged(&counters).await;
    running.stop().await.unwrap();

    let last = world.target.resource_version().to_string();
    let quotas = Api::<ResourceQuota>::all(world.target.client());
    let events = quotas.watch(&WatchParams::default(), &version).await.unwrap();
    let mut events = pin!(events);
    let mut highest = BTreeMap::new();
    loop {
        let event = events.try_next().await.unwrap().unwrap();
        let (WatchEvent::Added(quota) | WatchEvent::Modified(quota)) = event else {
            panic!("the target cluster has seen {event:?}");
        };
        let hard = quota.spec.unwrap().hard.unwrap();
        let counter: usize = hard["counter"].0.parse().unwrap();
        let before = highest.insert(quota.metadata.name.clone(), counter);
        assert!(before <= Some(counter), "{before:?}: {:?}", quota.metadata);
        if quota.metadata.resource_version == Some(last.clone()) {
            break;
        }
    }
}
