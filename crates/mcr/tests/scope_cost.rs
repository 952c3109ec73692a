//! The cost of ten thousand clusters behind one endpoint. The clusters are namespaces of a simulated API server with one
//! ConfigMap each, under a controller for ConfigMaps.
//!
//! It is a separate test binary, because it measures the memory and the CPU time of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/layout.rs"]
mod layout;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use layout::Namespaces;
use mcr::{
    Access, Action, BoxError, ClusterName, ClusterSpec, ClusterState, Controller, Fleet, Request, core::Scope,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const CLUSTERS: usize = 10_000;

/// The number of clusters that join first, among few others, and last, among all others.
const SOME: usize = 1_000;

/// The target of the project for resident memory, including the overhead of the allocator.
const MOST_BYTES: f64 = 6_000.0;
/// The limit of the ratio of the cost of one more cluster among ten thousand to that among one thousand. The ratio would be
/// ten if each cluster looked at all others. The suite `shared-scope` of mcr-bench measures the time.
const MOST_GROWTH: f64 = 3.0;

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0
}

/// CPU time of all threads of this process, in nanoseconds where the kernel counts so.
fn cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let counted = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    let nanos: u64 = counted
        .filter_map(|counted| counted.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    if nanos > 0 {
        return Duration::from_nanos(nanos);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

async fn until(what: &str, holds: impl FnMut() -> bool) {
    eventually(Duration::from_secs(120), what, holds).await;
}

fn place(number: usize) -> String {
    format!("tenant-{number:05}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_clusters_in_a_scope_cost_one_watch_and_little_each() {
    let server = SimCluster::new();
    for number in 0..CLUSTERS {
        let namespace = place(number);
        server
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .unwrap();
        server
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": namespace}, "data": {"key": "value"}}))
            .unwrap();
    }
    let scope = Scope::new(Namespaces(|| true));
    scope.set_endpoint("main", Access::from(server.client()));
    let spec = |number: usize| {
        let name = place(number);
        ClusterSpec::new(ClusterName::new(&name).unwrap(), scope.place("main", name))
            .identity(format!("{number}"))
    };
    let provider = ClustersProvider::new();
    let clusters = provider.handle();
    let fleet = Fleet::builder().provider(provider).build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });
    let reconciled = Arc::new(AtomicUsize::new(0));
    let controller = Controller::<ConfigMap>::new("maps")
        .build(
            |_: Request<ConfigMap>, reconciled: Arc<AtomicUsize>| async move {
                reconciled.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(Action::await_change())
            },
            reconciled.clone(),
        )
        .unwrap();
    let controlling = tokio::spawn(controller.run(fleet.clone(), stop.clone()));

    // The first cluster loads the objects of all clusters, so the rest measures the clusters without their objects.
    clusters.add(spec(0));
    until("the first one is reconciled", || {
        reconciled.load(Ordering::Relaxed) == 1
    })
    .await;
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (memory_before, started) = (resident(), Instant::now());
    let join = async |range: Range<usize>| {
        let (before, count) = (cpu(), range.len());
        for number in range.clone() {
            clusters.add(spec(number));
        }
        until("they are reconciled", || {
            reconciled.load(Ordering::Relaxed) >= range.end
        })
        .await;
        (cpu() - before).div_f64(count as f64)
    };
    let joining_first = join(1..SOME).await;
    join(SOME..CLUSTERS - SOME).await;
    let joining_last = join(CLUSTERS - SOME..CLUSTERS).await;
    let took = started.elapsed();
    let count = (CLUSTERS - 1) as f64;
    let bytes = (resident() - memory_before) / count;

    let more_tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
        .saturating_sub(tasks_before);
    assert!(
        more_tasks < 100,
        "{more_tasks} more tasks run for {CLUSTERS} more clusters, which have none of their own"
    );

    let lists = server.audit().count(|event| event.is_list("configmaps"));
    let watches = server.audit().count(|event| event.is_watch_start("configmaps"));
    assert_eq!((lists, watches), (1, 1), "lists and watches at the server");
    let status = fleet.snapshot();
    assert_eq!(status.scopes[0].clusters, CLUSTERS);
    assert!(
        status
            .clusters
            .iter()
            .all(|cluster| cluster.state == "Ready" && cluster.objects == 1)
    );

    let leave = async |range: Range<usize>| {
        let leaving: Vec<_> = range.map(|number| fleet.get(&place(number)).unwrap()).collect();
        let before = cpu();
        for cluster in &leaving {
            clusters.remove(cluster.name());
        }
        until("they have left", || {
            // The last one first: it is most often the one that is missing.
            leaving
                .iter()
                .rev()
                .all(|cluster| cluster.state() == ClusterState::Gone)
        })
        .await;
        (cpu() - before).div_f64(leaving.len() as f64)
    };
    let leaving_first = leave(0..SOME).await;
    leave(SOME..CLUSTERS - SOME).await;
    let leaving_last = leave(CLUSTERS - SOME..CLUSTERS).await;
    assert!(fleet.clusters().is_empty());
    until("nothing is shown of them", || {
        fleet.snapshot().clusters.is_empty()
    })
    .await;
    until("nobody watches any more", || server.watches() == 0).await;
    println!(
        "{CLUSTERS} clusters in a scope: joined and reconciled in {took:.1?}; each {:.1} kB beyond its objects; of CPU joining takes \
         {joining_first:.0?} among few and {joining_last:.0?} among all, leaving {leaving_last:.0?} and {leaving_first:.0?}",
        bytes / 1000.0,
    );
    assert!(bytes < MOST_BYTES, "{bytes:.0} bytes for each cluster");
    for (what, few, all) in [
        ("join", joining_first, joining_last),
        ("leave", leaving_last, leaving_first),
    ] {
        let growth = all.as_secs_f64() / few.as_secs_f64();
        assert!(
            growth < MOST_GROWTH,
            "{few:?} of CPU to {what} among few, {all:?} among all"
        );
    }
    assert_eq!(fleet.scopes().len(), 0);

    stop.cancel();
    controlling.await.unwrap().unwrap();
    running.await.unwrap();
}
