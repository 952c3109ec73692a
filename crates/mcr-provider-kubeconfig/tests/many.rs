//! Many Secrets at once, that lead to simulated clusters over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Controller, Manager, Request};
use mcr_core::{Change, ClusterState, Fleet, FleetSettings, Provider, WatchRequest};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::{SimCluster, SimFleet},
    waiting::{self, Background},
};
use serde_json::json;
use support::{locally, secret};
use tokio::{
    net::{TcpListener, TcpStream},
    time::advance,
};
use tokio_util::sync::CancellationToken;

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(120);

fn provider(hub: &SimCluster) -> KubeconfigProvider {
    let builder = KubeconfigProvider::builder()
        .client(hub.client())
        .namespace("fleet");
    builder.access_policy(locally()).build().unwrap()
}

/// A hub with so many Secrets, and the clusters that they lead to.
async fn world(many: usize) -> (SimCluster, SimFleet) {
    let animal = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "elephant", "namespace": "default"}});
    let first = SimCluster::new();
    first.create(animal).unwrap();
    let name = |n: usize| format!("member-{n:04}");
    let members = (0..many).map(|n| SimCluster::builder().name(name(n)).template(&first).build());
    let fleet = SimFleet::serve(members).await.unwrap();
    let hub = SimCluster::builder()
        .history(10 * many)
        .audit_limit(100_000)
        .build();
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    for n in 0..many {
        let kubeconfig = fleet.kubeconfig(&name(n)).unwrap();
        hub.create(secret("fleet", &name(n), kubeconfig)).unwrap();
    }
    (hub, fleet)
}

/// A request that a slow machine cuts short is made again, and a cluster is listed twice: so none is cut short.
fn in_an_hour(settings: &mut FleetSettings) {
    const HOUR: Duration = Duration::from_secs(3600);
    settings.probe_after = HOUR;
    settings.probe_timeout = HOUR;
    Arc::make_mut(&mut settings.watch).list_timeout = HOUR;
    let transport = Arc::make_mut(&mut settings.transport);
    transport.connect_timeout = HOUR;
    transport.head_timeout = HOUR;
    transport.read_timeout = HOUR;
}

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_secrets_are_a_thousand_clusters_for_one_list_at_the_hub_and_one_at_each() {
    const MANY: usize = 1000;
    // A test that fails shows this, which tells why a cluster was listed again.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_test_writer()
        .init();
    let (hub, members) = world(MANY).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let count = async |request: Request<ConfigMap>, seen: Arc<AtomicUsize>| {
        if request.name() == "elephant" {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        Ok::<_, std::convert::Infallible>(Action::await_change())
    };
    let controller = Controller::<ConfigMap>::new("counting")
        .watch_request(|watch| watch.namespace("default"))
        .build(count, seen.clone());
    let manager = Manager::builder()
        .provider(provider(&hub))
        .settings(|settings| {
            settings.access_policy = locally();
            in_an_hour(settings);
        })
        .controller(controller)
        .build()
        .unwrap();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    eventually("all are engaged", || {
        fleet.clusters().len() == MANY && fleet.is_discovered()
    })
    .await;
    eventually("all are reconciled", || seen.load(Ordering::SeqCst) >= MANY).await;
    let listed_otherwise = || -> Vec<String> {
        (0..MANY)
            .map(|n| format!("member-{n:04}"))
            .filter_map(|name| {
                let audit = members.get(&name)?.audit();
                let once = audit.count(|event| event.is_list("configmaps")) == 1;
                (!once).then(|| format!("{name}: {:?}", audit.events().collect::<Vec<_>>()))
            })
            .collect()
    };
    assert_eq!(listed_otherwise(), [""; 0], "one LIST at each member");

    // All Secrets are touched, and nobody is asked anything.
    for n in 0..MANY {
        let mut there = hub.get("secrets", &format!("fleet/member-{n:04}")).unwrap();
        there["metadata"]["labels"]["touched"] = "yes".into();
        hub.update(there).unwrap();
    }
    eventually("all have the label", || {
        fleet
            .clusters()
            .iter()
            .all(|cluster| cluster.label("touched").is_some())
    })
    .await;
    let audit = hub.audit();
    let asked = (
        audit.count(|event| event.is_list("secrets")),
        audit.count(|event| event.is_watch_start("secrets")),
    );
    assert_eq!(asked, (1, 1), "one LIST and one watch at the hub");
    assert_eq!(listed_otherwise(), [""; 0], "still one LIST at each member");
    running.stop().await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), MANY, "each is reconciled once");
}

/// Lets everything go on that can, until it is so, but no time: a runtime in paused time that has something to do does not
/// move its clock.
async fn without_time(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::task::yield_now().await;
    }
}

/// An API server that takes connections and says nothing, so that all that are made at once can be counted.
#[tokio::test(start_paused = true)]
async fn of_many_secrets_no_more_are_dialled_at_once_than_there_are_places() {
    const MANY: usize = 300;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hub = SimCluster::new();
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    for n in 0..MANY {
        let name = format!("member-{n:04}");
        let token = Credentials::Token("t".to_owned());
        let kubeconfig = KubeconfigBuilder::new().context(&name, format!("http://{address}"), "", token);
        hub.create(secret("fleet", &name, kubeconfig.to_yaml())).unwrap();
    }
    let fleet = Fleet::builder()
        .provider(provider(&hub))
        .settings(|settings| settings.access_policy = locally())
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    let dialled = Arc::new(Mutex::new(Vec::new()));
    let accepting = Background::start({
        let dialled = dialled.clone();
        |stop| async move {
            while let Some(Ok((stream, peer))) = stop.run_until_cancelled(listener.accept()).await {
                dialled.lock().unwrap().push((stream, peer));
            }
        }
    });
    without_time("all are engaged", || {
        let clusters = fleet.clusters();
        clusters.len() == MANY
            && clusters
                .iter()
                .all(|cluster| cluster.state() == ClusterState::Connecting)
    })
    .await;
    let places = FleetSettings::default().connects;
    let connections = || dialled.lock().unwrap().len();
    without_time("as many are dialled as may be", || connections() >= places).await;
    // All others have had their turn, too, and what was dialled before is taken before this.
    for _ in 0..MANY {
        tokio::task::yield_now().await;
    }
    let marker = TcpStream::connect(address).await.unwrap();
    let is_marker = |peer: &SocketAddr| *peer == marker.local_addr().unwrap();
    let before_marker = || {
        dialled
            .lock()
            .unwrap()
            .iter()
            .position(|(_, peer)| is_marker(peer))
    };
    without_time("the marker is taken", || before_marker().is_some()).await;
    assert_eq!(before_marker(), Some(places), "connections being made at once");
    // Who only waits gives its place to the next.
    advance(Duration::from_millis(250)).await;
    without_time("the next ones are dialled", || connections() > 2 * places).await;
    running.stop().await;
    accepting.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_26_forty_tasks_index_get_list_and_remove_twenty_clusters_at_once() {
    const MANY: usize = 20;
    let (hub, _members) = world(MANY).await;
    let fleet = Fleet::builder()
        .provider(provider(&hub))
        .settings(|settings| settings.access_policy = locally())
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    eventually("all are there", || fleet.clusters().len() == MANY).await;
    let over = Arc::new(AtomicBool::new(false));
    let rounds: Arc<Vec<AtomicUsize>> = Arc::new((0..40).map(|_| AtomicUsize::new(0)).collect());
    let tasks: Vec<_> = (0..40)
        .map(|n: usize| {
            let (fleet, hub) = (fleet.clone(), hub.clone());
            let (over, rounds) = (over.clone(), rounds.clone());
            tokio::spawn(async move {
                let name = format!("member-{:04}", n % MANY);
                while !over.load(Ordering::SeqCst) {
                    rounds[n].fetch_add(1, Ordering::SeqCst);
                    match n % 4 {
                        0 => fleet.index::<ConfigMap>(format!("index-{n}"), |map| {
                            map.metadata.name.clone().into_iter().collect()
                        }),
                        1 => {
                            if let Ok(cluster) = fleet.get(&name) {
                                assert_eq!(cluster.name(), &*name);
                            }
                        }
                        2 => {
                            let clusters = fleet.clusters();
                            assert!(clusters.is_sorted_by(|a, b| a.name() < b.name()));
                        }
                        _ => {
                            // Removed and added again, while others look for it; and one of them does the same.
                            let key = format!("fleet/{name}");
                            if let Some(mut there) = hub.get("secrets", &key) {
                                let _ = hub.delete("secrets", &key);
                                tokio::task::yield_now().await;
                                let metadata = there["metadata"].as_object_mut().unwrap();
                                metadata.retain(|field, _| {
                                    ["name", "namespace", "labels"].contains(&field.as_str())
                                });
                                let _ = hub.create(there);
                            }
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .collect();
    eventually("each has had its turn many times", || {
        rounds.iter().all(|rounds| rounds.load(Ordering::SeqCst) >= 300)
    })
    .await;
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        tokio::time::timeout(PATIENCE, task)
            .await
            .expect("nothing locks up")
            .unwrap();
    }
    eventually("all are there again, and answer", || {
        let clusters = fleet.clusters();
        clusters.len() == MANY
            && clusters
                .iter()
                .all(|cluster| cluster.state() == ClusterState::Ready)
    })
    .await;
    for n in 0..MANY {
        hub.delete("secrets", &format!("fleet/member-{n:04}")).unwrap();
    }
    eventually("none is left", || fleet.clusters().is_empty()).await;
    running.stop().await;
}

/// The API server leaves out what has no label; and of what has it one LIST and one watch tell.
#[tokio::test]
async fn only_labelled_secrets_of_the_namespace_are_asked_for() {
    let hub = SimCluster::new();
    hub.create(secret("default", "mine", "half: [")).unwrap();
    let mut unlabelled = secret("default", "private", "secret");
    unlabelled["metadata"]["labels"] = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "false"});
    hub.create(unlabelled).unwrap();
    hub.create(secret("kube-system", "elsewhere", "secret")).unwrap();
    let received = async |provider: KubeconfigProvider| {
        let mut discovery = provider.discover(CancellationToken::new());
        let mut received = Vec::new();
        while received.last().is_none_or(|last| last != "synced") {
            received.push(match discovery.next().await.unwrap().unwrap() {
                Change::Upsert(spec) => format!("+{}", spec.name),
                Change::Broken(broken) => format!("!{}", broken.name),
                Change::Synced => "synced".into(),
                other => panic!("{other:?}"),
            });
        }
        received
    };
    let builder = || KubeconfigProvider::builder().client(hub.client()).events(false);
    assert_eq!(received(builder().build().unwrap()).await, ["!mine", "synced"]);
    let all = builder().all_namespaces().build().unwrap();
    let mut received_all = received(all).await;
    received_all.sort();
    assert_eq!(
        received_all,
        ["!default/mine", "!kube-system/elsewhere", "synced"]
    );
    let other = builder()
        .label("example.com/cluster", "yes")
        .key("value")
        .build()
        .unwrap();
    assert_eq!(received(other).await, ["synced"]);

    let audit = hub.audit();
    for event in audit.events().filter(|event| event.resource == "secrets") {
        let selected = event.uri.contains("labelSelector=");
        assert!(
            selected && ["list", "watch"].contains(&event.verb.as_str()),
            "{event:?}"
        );
    }
    assert_eq!(audit.count(|event| event.is_list("secrets")), 3);
    assert_eq!(
        WatchRequest::of::<k8s_openapi::api::core::v1::Secret>().plural(),
        "secrets"
    );
}
