//! What an object costs: memory held for each byte of its JSON, and time to read and to write it.
//!
//! By itself in its process, for the allocator counts what all of it allocates. Figures:
//!
//! ```text
//! cargo test --release -p mcr-core --test store_cost -- --nocapture
//! ```

#![allow(clippy::unwrap_used)]

mod objects;
mod server;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::core::{ApiResource, DynamicObject};
use mcr_core::{
    Cluster, ClusterName, ClusterSpec, Fleet, Object, ObjectKey, Store, WatchHandle, WatchRequest,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::waiting::{Background, eventually};
use objects::Kind;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use server::{NOTHING, OBJECTS, Server, item};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Fewer where everything takes long.
const CLUSTERS: usize = if cfg!(debug_assertions) { 10 } else { 100 };

/// Times say something of optimised programs only.
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 61 };

/// The targets of the project: see docs/design/store.md.
const MOST_HELD: f64 = 0.8;

/// One test at a time, in one thread. Time is paused and goes on when nothing is left to be done, on other threads either.
fn alone<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone: MutexGuard<'_, ()> = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test());
}

/// A fleet of clusters that have objects of one kind.
struct Running {
    fleet: Fleet,
    kind: Kind,
    servers: Vec<Server>,
    clusters: Vec<Cluster>,
    running: Background<()>,
}

impl Running {
    async fn start(kind: Kind) -> Self {
        let provider = ClustersProvider::new();
        let added = provider.handle();
        let fleet = Fleet::builder().provider(provider).build();
        let runs = fleet.clone();
        let running = Background::start(|stop| async move { runs.run(stop).await });
        let servers: Vec<Server> = (0..CLUSTERS).map(|cluster| Server::new(cluster, kind)).collect();
        for (cluster, server) in servers.iter().enumerate() {
            let client = kube::Client::new(server.clone(), "default");
            let name = ClusterName::new(format!("c{cluster}")).unwrap();
            added.add(ClusterSpec::new(name, client.into()));
        }
        let clusters = eventually(Duration::from_secs(60), "all are ready", || {
            let clusters = fleet.clusters();
            let ready = clusters
                .iter()
                .filter(|c| c.state().as_str() == "Ready" && c.identity().is_some());
            (ready.count() == CLUSTERS).then_some(clusters)
        })
        .await;
        Self {
            fleet,
            kind,
            servers,
            clusters,
            running,
        }
    }

    fn request(&self) -> WatchRequest {
        match self.kind {
            Kind::SmallConfigMap | Kind::ConfigMap => WatchRequest::of::<ConfigMap>(),
            Kind::Pod => WatchRequest::of::<Pod>(),
            Kind::Deployment => WatchRequest::of::<Deployment>(),
            Kind::Certificate => WatchRequest::resource(&ApiResource {
                group: "cert-manager.io".into(),
                version: "v1".into(),
                api_version: "cert-manager.io/v1".into(),
                kind: "Certificate".into(),
                plural: "certificates".into(),
            }),
        }
    }

    async fn watch(&self, request: WatchRequest) -> Vec<WatchHandle> {
        let watch = |cluster: &Cluster| cluster.watch(request.clone(), None).unwrap();
        let handles: Vec<WatchHandle> = self.clusters.iter().map(watch).collect();
        eventually(Duration::from_secs(120), "all are listed", || {
            handles.iter().all(|handle| handle.status().synced)
        })
        .await;
        settled().await;
        handles
    }

    /// What the objects take, beyond what watches of nothing take.
    async fn held_by_objects(&self) -> (Vec<WatchHandle>, usize) {
        // What is allocated once and stays.
        drop(self.watch(self.request()).await);
        settled().await;
        let before = MEMORY.current_usage();
        let handles = self.watch(self.request().labels(NOTHING)).await;
        let nothing = MEMORY.current_usage() - before;
        drop(handles);
        settled().await;
        let before = MEMORY.current_usage();
        let handles = self.watch(self.request()).await;
        let held = MEMORY.current_usage() - before;
        (handles, held.saturating_sub(nothing))
    }

    fn store(&self, cluster: usize) -> Store<DynamicObject> {
        let name = format!("c{cluster}");
        self.fleet.get(&name).unwrap().store_of(&self.request()).unwrap()
    }

    fn some_objects(&self) -> Vec<Arc<Object>> {
        let keys = |store: &Store<DynamicObject>| store.keys().unwrap();
        let of = |store: Store<DynamicObject>| {
            keys(&store)
                .into_iter()
                .map(move |key| store.raw(&key).unwrap().unwrap())
        };
        (0..4)
            .flat_map(|cluster| of(self.store(cluster * CLUSTERS / 4)))
            .collect()
    }

    async fn end(self) {
        self.running.stop().await;
    }
}

/// Waits until what was begun has ended: a while without any change of what is allocated.
async fn settled() {
    let mut last = 0;
    let mut same = 0;
    while same < 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = MEMORY.current_usage();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
}

/// How long the JSON of all objects is, without `managedFields`.
fn json_bytes(kind: Kind) -> usize {
    let each = (0..CLUSTERS).flat_map(|cluster| (0..OBJECTS).map(move |number| kind.object(cluster, number)));
    each.map(|mut object| {
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        object.to_string().len()
    })
    .sum()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn decode(kind: Kind, object: &Object) {
    match kind {
        Kind::SmallConfigMap | Kind::ConfigMap => drop(object.decode::<ConfigMap>().unwrap()),
        Kind::Pod => drop(object.decode::<Pod>().unwrap()),
        Kind::Deployment => drop(object.decode::<Deployment>().unwrap()),
        Kind::Certificate => drop(object.decode::<DynamicObject>().unwrap()),
    }
}

/// Nanoseconds for each of the objects.
fn reading(kind: Kind, objects: &[Arc<Object>]) -> f64 {
    let began = Instant::now();
    objects.iter().for_each(|object| decode(kind, object));
    began.elapsed().as_nanos() as f64 / objects.len() as f64
}

/// Nanoseconds for each object that a watch tells of, from its bytes to the store.
async fn writing(running: &Running, round: usize) -> f64 {
    const CLUSTER: usize = 0;
    let version = |number: usize| (round + 1) * 1_000_000_000 + number;
    let mut events = String::new();
    let mut last = Value::Null;
    for number in 0..OBJECTS {
        let mut object = item(running.kind, CLUSTER, number);
        object["metadata"]["resourceVersion"] = version(number).to_string().into();
        last = object["metadata"].clone();
        events += &json!({"type": "MODIFIED", "object": object}).to_string();
        events.push('\n');
    }
    let name = |field: &str| last[field].as_str().unwrap().to_owned();
    let (key, version) = (
        ObjectKey::namespaced(name("namespace"), name("name")),
        version(OBJECTS - 1).to_string(),
    );
    let store = running.store(CLUSTER);
    running.servers[CLUSTER].send(Bytes::from(events));
    let began = Instant::now();
    while store.raw(&key).unwrap().unwrap().resource_version() != version {
        tokio::task::yield_now().await;
    }
    began.elapsed().as_nanos() as f64 / OBJECTS as f64
}

#[test]
fn what_is_held_of_an_object_is_less_than_its_json() {
    alone(|| async {
        for kind in Kind::ALL {
            let json = json_bytes(kind);
            let running = Running::start(kind).await;
            let (handles, held) = running.held_by_objects().await;
            let objects = running.some_objects();
            let mut reads = Vec::new();
            let mut writes = Vec::new();
            for (round, some) in objects.chunks(20).cycle().take(ROUNDS).enumerate() {
                reads.push(reading(kind, some));
                writes.push(writing(&running, round).await);
            }
            let count = CLUSTERS * OBJECTS;
            let ratio = held as f64 / json as f64;
            println!(
                "{kind:?}: {} bytes of JSON, {} held, {ratio:.2}x; {:.0} ns to read, {:.0} ns to write",
                json / count,
                held / count,
                median(reads),
                median(writes),
            );
            drop(handles);
            running.end().await;
            assert!(ratio <= MOST_HELD, "{kind:?}: {ratio:.2}x");
        }
    });
}
