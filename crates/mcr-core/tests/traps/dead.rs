//! Clusters that don't answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use mcr_core::{Cluster, ClusterState, WatchRequest};
use tokio::time::Instant;

use mcr_doubles::scripted::{Answer, Server, bookmark};

use crate::harness::*;

/// kube's back-off is reset by every attempt: a dead cluster is dialled every 1.2 s, by each of its watches.
#[tokio::test(start_paused = true)]
async fn a_dead_cluster_is_dialled_with_growing_pauses_however_much_is_watched_there() {
    let attempts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let seen = attempts.clone();
    let access = refuses(move || seen.lock().unwrap().push(Instant::now()));
    let running = Running::with_settings(|_| {});
    let cluster = running.join_by("dead", access).await;
    let _watches = (
        cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap(),
        cluster.watch(WatchRequest::of::<Secret>(), None).unwrap(),
        cluster.watch(WatchRequest::of::<Service>(), None).unwrap(),
    );
    for_millis(4500).await;
    let attempts = attempts.lock().unwrap().clone();
    // At first each watch may try for itself. Then there is one series, with pauses of at most 0.5, 1, 2, 4 s,
    // each shortened by at most a half.
    let first = attempts.partition_point(|at| *at - attempts[0] <= Duration::from_millis(200));
    let later = attempts.len() - first;
    assert!(first <= 4 && (2..=4).contains(&later), "{attempts:?}");
    unreachable(&cluster, "refused").await;
    running.stop().await;
}

/// Many clusters that never answer, and one that is well and comes last.
#[tokio::test(start_paused = true)]
async fn silent_newcomers_do_not_keep_a_healthy_one_waiting() {
    let good = Server::in_memory(serves_one_map);
    let running = Running::start_with(|settings| {
        // Two lists begin at once.
        Arc::make_mut(&mut settings.watch).fleet_list_bytes = 2 << 20;
        settings.connects = 2;
    });
    let mut watches = Vec::new();
    for i in 0..8 {
        let cluster = running
            .join_by(&format!("silent-{i}"), silent("default").into())
            .await;
        watches.push(follow(&cluster, WatchRequest::of::<ConfigMap>()));
    }
    let started = Instant::now();
    let cluster = running.join_by("good", good.access()).await;
    let (watch, _log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    synced(&watch).await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    running.stop().await;
}

/// Each of two is probed every two seconds, not every tenth of one.
#[tokio::test(start_paused = true)]
async fn the_clusters_of_a_large_fleet_are_probed_less_often() {
    let server = Server::in_memory(serves_one_map);
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_millis(100);
        settings.probes_per_second = 1;
    });
    let mut watches = Vec::new();
    for name in ["a", "b"] {
        let cluster = running.join_by(name, server.access()).await;
        let (watch, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
        log.becomes(&["+a"]).await;
        watches.push(watch);
    }
    // Who they are has been asked by then.
    for_millis(1000).await;
    let before = server.probes();
    for_millis(100_000).await;
    let probes = server.probes() - before;
    assert!((98..=102).contains(&probes), "{probes} probes in 100 s");
    running.stop().await;
}

/// A server that accepts connections and says nothing looks alive to TCP. A watch may wait for its head for minutes, which does not
/// hide that the server is silent.
#[tokio::test(start_paused = true)]
async fn a_silent_cluster_is_found_out_by_a_probe_and_a_quiet_one_is_not() {
    let watches: [fn() -> Answer; 2] = [quiet, Answer::silence];
    for watch in watches {
        let server = Server::in_memory(move |asked| {
            if !asked.is_watch() {
                list(10, [map("a", 1)])
            } else {
                watch()
            }
        });
        let one = One::with(&server, Running::with_settings(|_| {})).await;
        one.log.becomes(&["+a"]).await;
        // A quiet cluster is probed, and stays ready.
        let ready = |state: &ClusterState| !state.is_ready();
        for_millis(1000).await;
        let (before, changes) = (server.probes(), one.cluster.wait_for(ready));
        let changed = tokio::time::timeout(Duration::from_secs(180), changes).await;
        assert!(changed.is_err(), "{changed:?}");
        assert!(server.probes() > before + 5);
        // From here on the watch stays open, requests are taken, and nothing comes.
        server.fall_silent();
        unreachable_in_time(&one.cluster).await;
        ready_in_time(&one, &server).await;
        // It goes on where it was: what could not be seen is not deleted, and nothing is listed again.
        one.log.is(&["+a"]);
        assert_eq!(server.lists(MAPS).len(), 1);
        one.running.stop().await;
    }
}

/// Over sockets, where the kernel would notice a dead network; a tenth of the usual times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_cluster_is_probed_when_a_bookmark_is_late_and_when_a_connection_is_new() {
    let server = quiet_server().await;
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_secs(2);
        settings.probe_timeout = Duration::from_secs(1);
    });
    let one = One::with(&server, running).await;
    one.log.becomes(&["+a"]).await;
    ready(&one.cluster).await;
    let before = server.probes();
    for version in 11..14 {
        server.send(MAPS, &bookmark(version)).await;
        for_millis(3000).await;
    }
    assert_eq!(server.probes(), before);
    // Another cluster may answer there now.
    let maps = one.cluster.namespaced::<ConfigMap>("default");
    let _ = maps.get("a").await;
    for_millis(4000).await;
    assert!(server.probes() > before);
    server.send(MAPS, &bookmark(14)).await;
    server.fall_silent();
    let began = Instant::now();
    unreachable(&one.cluster, "no answer within").await;
    let took = began.elapsed().as_secs_f32();
    // 6.5 s and a probe, instead of 2 s and a probe.
    assert!(took > 5.0, "{took}");
    server.speak_again();
    ready(&one.cluster).await;
    one.running.stop().await;
}

/// Nothing is sent to an idle cluster. The kernel notices that what it sends to keep the connection is not acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn an_idle_cluster_behind_a_dead_network_is_unreachable_within_thirty_seconds() {
    const TEST: &str = "dead::an_idle_cluster_behind_a_dead_network_is_unreachable_within_thirty_seconds";
    if !in_a_network_of_its_own(TEST) {
        return;
    }
    let server = quiet_server().await;
    let one = One::with(&server, Running::with_settings(|_| {})).await;
    one.log.becomes(&["+a"]).await;
    ready(&one.cluster).await;
    packet_filter("-A INPUT -j DROP");
    unreachable_in_time(&one.cluster).await;
    packet_filter("-F INPUT");
    let again = one.cluster.wait_for(ClusterState::is_ready);
    tokio::time::timeout(Duration::from_secs(35), again)
        .await
        .unwrap();
    one.running.stop().await;
}

/// One that was never heard of, and is there in the end.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_answers_reports_so_within_thirty_seconds() {
    let server = Server::in_memory(serves_one_map);
    server.fall_silent();
    let one = One::with(&server, Running::with_settings(|_| {})).await;
    unreachable_in_time(&one.cluster).await;
    ready_in_time(&one, &server).await;
    one.log.becomes(&["+a"]).await;
    one.running.stop().await;
}

/// Promise 1: a silent cluster is Unreachable within 30 s.
async fn unreachable_in_time(cluster: &Cluster) {
    let unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
    let state = tokio::time::timeout(Duration::from_secs(30), cluster.wait_for(unreachable)).await;
    let state = state.expect("within 30 s");
    assert!(state.reason().unwrap().contains("no answer within"), "{state}");
}

/// Promise 1: it is Ready within 35 s of the end of its silence, however long that took.
async fn ready_in_time(one: &One, server: &Server) {
    for_millis(600_000).await;
    assert!(!one.cluster.state().is_ready());
    server.speak_again();
    let again = tokio::time::timeout(
        Duration::from_secs(35),
        one.cluster.wait_for(ClusterState::is_ready),
    );
    assert!(again.await.is_ok(), "{}", one.cluster.state());
}
