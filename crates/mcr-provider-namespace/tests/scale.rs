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
use mcr::{Action, BoxError, Controller, Fleet, Request};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const NAMESPACES: usize = 10_000;
const MORE: usize = 500;

fn add(server: &SimCluster, number: usize) {
    let namespace = format!("tenant-{number:05}");
    server
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .unwrap();
    let map = json!({"metadata": {"name": "config", "namespace": namespace}, "apiVersion": "v1", "kind": "ConfigMap"});
    server.create(map).unwrap();
}

/// User and system time of this process; none where there is no /proc.
fn cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(Duration::from_secs(120), what, || holds().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_namespaces_are_one_watch_for_each_kind() {
    let server = SimCluster::builder().finish_namespaces(true).build();
    for number in 0..NAMESPACES {
        add(&server, number);
    }
    let provider = NamespaceProvider::builder()
        .client(server.client())
        .filter(|name| name.starts_with("tenant-"))
        .build()
        .unwrap();
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
    let started = Instant::now();
    until("all are reconciled", || {
        reconciled.load(Ordering::Relaxed) >= NAMESPACES
    })
    .await;
    let took = started.elapsed();

    // The server is part of this process: what it does for a namespace and its object counts here, too.
    let before = cpu();
    for number in NAMESPACES..NAMESPACES + MORE {
        add(&server, number);
    }
    until("those that come later are reconciled", || {
        reconciled.load(Ordering::Relaxed) >= NAMESPACES + MORE
    })
    .await;
    let joining = before.map(|before| (cpu().unwrap() - before).div_f64(MORE as f64));
    let before = cpu();
    for number in NAMESPACES..NAMESPACES + MORE {
        server
            .delete("namespaces", &format!("tenant-{number:05}"))
            .unwrap();
    }
    until("they have left", || fleet.clusters().len() == NAMESPACES).await;
    let leaving = before.map(|before| (cpu().unwrap() - before).div_f64(MORE as f64));
    println!(
        "{NAMESPACES} namespaces: engaged and reconciled in {took:.1?}; each more costs {joining:.0?} of CPU to join and {leaving:.0?} to leave, the server's part included"
    );

    for resource in ["configmaps", "namespaces"] {
        let audit = server.audit();
        let asked = (
            audit.count(|event| event.is_list(resource)),
            audit.count(|event| event.is_watch_start(resource)),
        );
        assert_eq!(asked, (1, 1), "lists and watches of {resource} at the server");
    }
    for cost in [joining, leaving].into_iter().flatten() {
        assert!(cost < Duration::from_millis(1), "{cost:?} of CPU for one more");
    }
    stop.cancel();
    controlling.await.unwrap().unwrap();
    running.await.unwrap();
}
