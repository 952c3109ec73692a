//! Clusters that don't answer.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use mcr_core::{ClusterState, WatchRequest};
use tokio::net::TcpListener;

use crate::{
    harness::*,
    server::{Answer, Server, kubeconfig},
};

/// Accepts and hangs up, and writes down when: to a client as dead as a closed port, but attempts can be seen.
async fn hangs_up() -> (String, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let attempts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let seen = attempts.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            seen.lock().unwrap().push(Instant::now());
            drop(connection);
        }
    });
    (server, attempts)
}

/// kube's back-off is reset by every attempt: a dead cluster is dialled every 1.2 s, by each of its watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_cluster_is_dialled_with_growing_pauses_however_much_is_watched_there() {
    let (server, attempts) = hangs_up().await;
    let running = Running::start_as_by_default(|_| {});
    let cluster = running.join("dead", &kubeconfig(&server)).await;
    let _watches = (
        cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap(),
        cluster.watch(WatchRequest::of::<Secret>(), None).unwrap(),
        cluster.watch(WatchRequest::of::<Service>(), None).unwrap(),
    );
    for_millis(4500).await;
    let attempts = attempts.lock().unwrap().clone();
    // At first each watch may try for itself. Then there is one series, with pauses of at most 0.5, 1, 2, 4 s,
    // each shortened by at most a half.
    let first = attempts[0];
    let later: Vec<Instant> = attempts
        .iter()
        .copied()
        .filter(|at| *at - first > Duration::from_millis(200))
        .collect();
    assert!(attempts.len() - later.len() <= 4, "{attempts:?}");
    assert!(
        (2..=4).contains(&later.len()),
        "{} attempts after the first, in 4.5 s",
        later.len()
    );
    let pauses: Vec<Duration> = later.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        pauses
            .iter()
            .zip(&pauses[1..])
            .all(|(one, next)| *next > one.mul_f64(0.9)),
        "{pauses:?}"
    );
    assert!(
        matches!(cluster.state(), ClusterState::Unreachable { .. }),
        "{}",
        cluster.state()
    );
    running.stop().await;
}

/// A cluster that dies later: its watches all notice, and one probe series comes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_dies_is_unreachable_at_once_and_goes_on_where_it_was() {
    let (server, attempts) = hangs_up().await;
    let address: std::net::SocketAddr = server.trim_start_matches("http://").parse().unwrap();
    let good = Server::start(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(10, [map("a", 1)]),
        (true, 0) => Answer::watch([&bookmark(15)]),
        (true, _) => Answer::watch([&event("ADDED", map("b", 16))]),
    })
    .await;
    let door = Door::open(good.address).await;
    let running = Running::start();
    let cluster = running.join("a", &kubeconfig(&door.url())).await;
    let (watch, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    let (_secrets, _) = follow(&cluster, WatchRequest::of::<Secret>());
    eventually("both are watched", || (good.live() == 2).then_some(())).await;
    for_millis(50).await;

    door.lead_to(address);
    let state = tokio::time::timeout(
        Duration::from_secs(3),
        cluster.wait_for(|state| matches!(state, ClusterState::Unreachable { .. })),
    );
    assert!(matches!(state.await, Ok(ClusterState::Unreachable { .. })));
    assert!(!attempts.lock().unwrap().is_empty());
    eventually("all connections are closed", || (good.open() == 0).then_some(())).await;
    // What can't be seen is not deleted.
    log.is(&["+a"]);
    assert!(watch.status().synced);

    door.lead_to(good.address);
    ready(&cluster).await;
    log.becomes(&["+a", "+b"]).await;
    let watches = good.watches(MAPS);
    assert_eq!(watches.last().unwrap().get("resourceVersion"), Some("15"));
    assert_eq!(
        good.lists(MAPS).len(),
        1,
        "the same cluster at the same place is not listed again"
    );
    running.stop().await;
}

/// Many clusters that accept connections and say nothing, and one that is well and comes last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_newcomers_do_not_keep_a_healthy_one_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = kubeconfig(&format!("http://{}", silent.local_addr().unwrap()));
    let good = quiet_server().await;
    let running = Running::start_with(|settings| {
        settings.lists = 2;
        settings.connects = 2;
    });
    let mut watches = Vec::new();
    for i in 0..8 {
        let cluster = running.join(&format!("silent-{i}"), &at).await;
        watches.push(follow(&cluster, WatchRequest::of::<ConfigMap>()));
    }
    let started = Instant::now();
    let cluster = running.join("good", &good.kubeconfig()).await;
    let (watch, _log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    synced(&watch).await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    running.stop().await;
}

/// Passes connections on to a server that can be exchanged.
struct Door {
    address: std::net::SocketAddr,
    /// None: connections stay open, and nothing comes through any more.
    to: tokio::sync::watch::Sender<Option<std::net::SocketAddr>>,
}

impl Door {
    async fn open(to: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to, changes) = tokio::sync::watch::channel(Some(to));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut changes = changes.clone();
                tokio::spawn(async move {
                    let to = *changes.borrow_and_update();
                    let far = match to {
                        Some(to) => tokio::net::TcpStream::connect(to).await.map(Some),
                        None => Ok(None),
                    };
                    match far {
                        Ok(Some(mut far)) => tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                            _ = changes.changed() => {}
                        },
                        Ok(None) => {}
                        Err(_) => return,
                    }
                    // Held open for as long as it is to be silent.
                    let _ = changes.wait_for(Option::is_some).await;
                });
            }
        });
        Self { address, to }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn lead_to(&self, address: std::net::SocketAddr) {
        self.to.send_replace(Some(address));
    }

    fn fall_silent(&self) {
        self.to.send_replace(None);
    }
}

/// Each of two is probed every two seconds, not every tenth of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clusters_of_a_large_fleet_are_probed_less_often() {
    let server = quiet_server().await;
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_millis(100);
        settings.probes_per_second = 1;
    });
    let mut watches = Vec::new();
    for name in ["a", "b"] {
        let cluster = running.join(name, &server.kubeconfig()).await;
        let (watch, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
        log.becomes(&["+a"]).await;
        watches.push(watch);
    }
    let mut probes = HashSet::new();
    for _ in 0..100 {
        for_millis(50).await;
        let clusters = running.fleet.snapshot().clusters;
        probes.extend(
            clusters
                .into_iter()
                .map(|cluster| (cluster.name, cluster.last_probe)),
        );
    }
    // The one before is among them.
    assert!((4..=10).contains(&probes.len()), "{probes:?}");
    running.stop().await;
}

/// A server that accepts connections and says nothing looks alive to TCP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cluster_is_found_out_by_a_probe_and_a_quiet_one_is_not() {
    let server = quiet_server().await;
    let door = Door::open(server.address).await;
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_millis(500);
        settings.probe_timeout = Duration::from_millis(300);
    });
    let cluster = running.join("a", &kubeconfig(&door.url())).await;
    let (_watch, log) = follow(&cluster, WatchRequest::of::<ConfigMap>());
    log.becomes(&["+a"]).await;
    // A quiet cluster is probed, and stays ready.
    for_millis(1500).await;
    assert!(cluster.state().is_ready());
    // From here on the watch stays open, connections are accepted, and nothing comes.
    door.fall_silent();
    let state = cluster.wait_for(|state| matches!(state, ClusterState::Unreachable { .. }));
    let state = tokio::time::timeout(Duration::from_secs(3), state).await.unwrap();
    assert!(state.reason().unwrap().contains("no answer within"), "{state}");
    running.stop().await;
}
