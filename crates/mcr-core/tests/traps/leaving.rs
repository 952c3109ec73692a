//! What is left of a cluster that left: nothing.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use mcr_core::{ClusterState, FleetSettings, StoreError, WatchRequest};

use mcr_doubles::scripted::{Answer, Server};

use crate::harness::*;

/// Everything that could end a request or close a connection takes an hour, so that only a removal does.
fn in_an_hour(settings: &mut FleetSettings) {
    const HOUR: Duration = Duration::from_secs(3600);
    settings.drain_grace = HOUR;
    settings.probe_after = HOUR;
    settings.probe_timeout = HOUR;
    let watch = Arc::make_mut(&mut settings.watch);
    watch.list_timeout = HOUR;
    watch.watch_timeout = HOUR;
    watch.silence_timeout = HOUR;
    let transport = Arc::make_mut(&mut settings.transport);
    transport.connect_timeout = HOUR;
    transport.head_timeout = HOUR;
    transport.read_timeout = HOUR;
    transport.idle_timeout = HOUR;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_of_a_removed_cluster_close_at_once() {
    let server = Server::start(|asked| match (asked.path.as_str(), asked.is_watch()) {
        (_, true) => quiet(),
        (path, false) if path.contains("secrets") => Answer::silence(),
        (_, false) => list(10, [map("a", 1)]),
    })
    .await;
    let one = One::with(&server, Running::start_with(in_an_hour)).await;
    let (_secrets, _) = follow(&one.cluster, WatchRequest::of::<Secret>());
    ready(&one.cluster).await;
    let client = one.cluster.client();
    client.apiserver_version().await.unwrap();
    let asking = tokio::spawn({
        let secrets: Api<Secret> = one.cluster.namespaced("default");
        async move { secrets.get("x").await.unwrap_err() }
    });
    eventually("one is watched, one is being listed, one is asked for", || {
        server.live() == 3
    })
    .await;
    let store = one.cluster.store::<ConfigMap>().unwrap();
    one.running.clusters.remove(&name("a"));
    eventually("it is gone", || one.cluster.state() == ClusterState::Gone).await;
    eventually("all are closed", || server.open() == 0).await;
    let error = asking.await.unwrap();
    assert!(
        mcr_core::explain_error(&error).contains("gone from the fleet"),
        "{error}"
    );
    assert!(matches!(store.list(), Err(StoreError::Gone { .. })));
    // Leaving is never a delete.
    one.log.is(&["+a"]);
    let error = client.apiserver_version().await.unwrap_err();
    assert!(
        mcr_core::explain_error(&error).contains("gone from the fleet"),
        "{error}"
    );
    one.running.stop().await;
}

/// While the fleet waits for an answer of a cluster that may be dead it must still notice that it was removed.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_being_probed_can_be_removed() {
    let server = Server::in_memory(serves_one_map);
    let running = Running::start_with(|settings| {
        in_an_hour(settings);
        settings.probe_after = Duration::from_millis(200);
    });
    let one = One::with(&server, running).await;
    one.synced().await;
    server.fall_silent();
    let probes = server.probes();
    eventually("a probe hangs", || server.probes() > probes).await;
    one.running.clusters.remove(&name("a"));
    gone(&one.cluster).await;
    one.running.stop().await;
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn fifty_clusters_that_came_and_went_leave_no_task_and_no_socket() {
    if !in_a_process_of_its_own(
        "leaving::fifty_clusters_that_came_and_went_leave_no_task_and_no_socket",
        &[],
    ) {
        return;
    }
    let server = quiet_server().await;
    let running = Running::start();
    // One round first: what a process makes once is not a leak.
    round(&server, &running).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let (tasks, files) = stable(|| (metrics.num_alive_tasks(), open_files())).await;
    for _ in 0..50 {
        round(&server, &running).await;
    }
    eventually("as before", || {
        metrics.num_alive_tasks() <= tasks && open_files() <= files && server.open() == 0
    })
    .await;
    assert!(server.connections() >= 51 * 2);
    assert!(running.fleet.snapshot().clusters.is_empty());
    running.stop().await;
}

/// Joins a cluster, uses everything of it, and takes it away.
async fn round(server: &Server, running: &Running) {
    let cluster = running.join("a", &server.kubeconfig()).await;
    let (maps, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    let (secrets, _) = follow(&cluster, WatchRequest::of::<Secret>());
    log.becomes(&["+a"]).await;
    synced(&secrets).await;
    let _recorder = cluster.recorder();
    cluster.client().apiserver_version().await.unwrap();
    running.clusters.remove(&name("a"));
    cluster.wait_for(|state| *state == ClusterState::Gone).await;
    let weak = Arc::downgrade(&log);
    drop((maps, secrets, log, cluster));
    eventually("nobody holds the sink", || weak.strong_count() == 0).await;
}

/// What is measured, once it no longer changes.
async fn stable<T: PartialEq + Copy>(measure: impl Fn() -> T) -> T {
    loop {
        let before = measure();
        for_millis(200).await;
        if measure() == before {
            return before;
        }
    }
}

/// Deleted and made anew while nobody looked: what was known of the old one must not be read as the new one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_same_address_is_noticed_at_the_next_look() {
    let server = Server::start(|asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            Answer::watch([])
        }
    })
    .await;
    let running = Running::start_with(|settings| settings.probe_after = Duration::from_millis(200));
    let one = One::with(&server, running).await;
    one.synced().await;
    eventually("known", || one.cluster.identity()).await;
    let store = one.cluster.store::<ConfigMap>().unwrap();
    server.become_another();
    next(&one.running, &one.cluster).await;
    assert!(store.list().is_err(), "the old one's objects are not readable");
    one.running.stop().await;
}
