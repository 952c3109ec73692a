//! Ten thousand namespaces of a simulated API server, with one ConfigMap each, as clusters.
//!
//! A process of its own, since it measures CPU time of the process.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, ClusterState, Controller, Fleet, Request};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::json;

const NAMESPACES: usize = 10_000;
/// So many come and go while there are few, and as many when all are there.
const MORE: usize = 1_000;
/// The most that one more cluster may cost among all, relative to its cost among few. The ratio would be ten if each
/// cluster looked at all others.
const MOST_GROWTH: f64 = 3.0;

fn tenant(number: usize) -> String {
    format!("tenant-{number:05}")
}

fn add(server: &SimCluster, number: usize) {
    let namespace = tenant(number);
    server
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .unwrap();
    let map = json!({"metadata": {"name": "config", "namespace": namespace}, "apiVersion": "v1", "kind": "ConfigMap"});
    server.create(map).unwrap();
}

/// CPU time of all threads of this process, in nanoseconds where the kernel counts so; none where there is no /proc.
fn cpu() -> Option<Duration> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let counted = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    let nanos: u64 = counted
        .filter_map(|counted| counted.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    if nanos > 0 {
        return Some(Duration::from_nanos(nanos));
    }
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

async fn until(what: &str, holds: impl FnMut() -> bool) {
    eventually(Duration::from_secs(120), what, holds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_namespaces_are_one_watch_for_each_kind() {
    // A watch that falls behind on a busy machine must find all that it missed, or it lists again.
    let server = SimCluster::builder()
        .finish_namespaces(true)
        .history(10 * NAMESPACES)
        .build();
    for number in 0..MORE {
        add(&server, number);
    }
    let provider = NamespaceProvider::builder()
        .client(server.client())
        .filter(|name| name.starts_with("tenant-"))
        .build()
        .unwrap();
    let fleet = Fleet::builder().provider(provider).build();
    let fleet_runs = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    let reconciled = Arc::new(AtomicUsize::new(0));
    let controller = Controller::<ConfigMap>::new("maps")
        .build(
            |request: Request<ConfigMap>, reconciled: Arc<AtomicUsize>| async move {
                // Not those that were deleted.
                reconciled.fetch_add(usize::from(request.live().is_some()), Ordering::Relaxed);
                Ok::<_, BoxError>(Action::await_change())
            },
            reconciled.clone(),
        )
        .unwrap();
    let controller_runs = Background::start({
        let fleet = fleet.clone();
        |stop| controller.run(fleet, stop)
    });
    let started = Instant::now();
    let reconciled_are = async |count: usize| {
        until("all are reconciled", || {
            reconciled.load(Ordering::Relaxed) >= count
        })
        .await;
    };
    reconciled_are(MORE).await;

    // The server is part of this process: what it does for a namespace and its object counts here, too.
    let come_and_go = async |there: usize| {
        let before = (cpu(), reconciled.load(Ordering::Relaxed));
        for number in there..there + MORE {
            add(&server, number);
        }
        reconciled_are(before.1 + MORE).await;
        let joining = before
            .0
            .map(|before| (cpu().unwrap() - before).div_f64(MORE as f64));
        let names = (there..there + MORE).map(tenant);
        let leaving: Vec<_> = names.map(|name| fleet.get(&name).unwrap()).collect();
        let before = cpu();
        for cluster in &leaving {
            server.delete("namespaces", cluster.name()).unwrap();
        }
        until("they have left", || {
            // The last first, which tells mostly.
            leaving
                .iter()
                .rev()
                .all(|cluster| cluster.state() == ClusterState::Gone)
        })
        .await;
        let leaving = before.map(|before| (cpu().unwrap() - before).div_f64(MORE as f64));
        [joining, leaving]
    };
    let among_few = come_and_go(MORE).await;
    let before = reconciled.load(Ordering::Relaxed);
    for number in MORE..NAMESPACES {
        add(&server, number);
    }
    reconciled_are(before + NAMESPACES - MORE).await;
    let took = started.elapsed();
    let among_all = come_and_go(NAMESPACES).await;
    assert_eq!(fleet.clusters().len(), NAMESPACES);
    println!(
        "{NAMESPACES} namespaces: engaged and reconciled in {took:.1?}; of CPU each more takes {among_few:.0?} to join and to leave among few and \
         {among_all:.0?} among all, the server's part included"
    );

    for resource in ["configmaps", "namespaces"] {
        let audit = server.audit();
        let asked = (
            audit.count(|event| event.is_list(resource)),
            audit.count(|event| event.is_watch_start(resource)),
        );
        assert_eq!(asked, (1, 1), "lists and watches of {resource} at the server");
    }
    for (what, few, all) in [
        ("join", among_few[0], among_all[0]),
        ("leave", among_few[1], among_all[1]),
    ] {
        let (Some(few), Some(all)) = (few, all) else {
            continue;
        };
        let growth = all.as_secs_f64() / few.as_secs_f64();
        assert!(
            growth < MOST_GROWTH,
            "{few:?} of CPU to {what} among few, {all:?} among all"
        );
    }
    controller_runs.stop().await.unwrap();
    fleet_runs.stop().await;
}
