//! Many Secrets at once, that lead to simulated clusters over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc,
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
    sim::{SimCluster, SimFleet},
    waiting,
};
use serde_json::json;
use support::{locally, secret};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(10);

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

async fn eventually(what: &str, within: Duration, mut so: impl FnMut() -> bool) {
    waiting::eventually(within, what, || so().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_secrets_are_a_thousand_clusters_within_ten_seconds() {
    const MANY: usize = 1000;
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
        .settings(|settings| settings.access_policy = locally())
        .controller(controller)
        .build()
        .unwrap();
    let fleet = manager.fleet().clone();
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    eventually("all are engaged", SOON, || {
        fleet.clusters().len() == MANY && fleet.is_discovered()
    })
    .await;
    let engaged = begun.elapsed();
    eventually("all are reconciled", SOON * 12, || {
        seen.load(Ordering::SeqCst) == MANY
    })
    .await;
    let dialled = members.most_handshakes_at_once();
    println!(
        "engaged after {engaged:?}, all reconciled after {:?}, {} connections, at most {dialled} being made at once",
        begun.elapsed(),
        members.connections()
    );
    // Those of new clusters and of their lists. Twice, because the server counts a handshake until it has read its last
    // message, when the client has long gone on.
    let FleetSettings { connects, lists, .. } = FleetSettings::default();
    assert!(
        dialled <= 2 * (connects + lists),
        "{dialled} connections were being made at once"
    );
    assert_eq!(seen.load(Ordering::SeqCst), MANY, "each once");
    let audit = hub.audit();
    assert_eq!(
        audit.count(|event| event.is_list("secrets")),
        1,
        "one LIST at the hub"
    );
    assert_eq!(audit.count(|event| event.is_watch_start("secrets")), 1);
    let lists: usize = (0..MANY)
        .filter_map(|n| members.get(&format!("member-{n:04}")))
        .map(|member| member.audit().count(|event| event.is_list("configmaps")))
        .sum();
    assert_eq!(lists, MANY, "and one at each member");

    // All Secrets are touched, and nobody is asked anything.
    for n in 0..MANY {
        let mut there = hub.get("secrets", &format!("fleet/member-{n:04}")).unwrap();
        there["metadata"]["labels"]["touched"] = "yes".into();
        hub.update(there).unwrap();
    }
    eventually("all have the label", SOON, || {
        fleet
            .clusters()
            .iter()
            .all(|cluster| cluster.label("touched").is_some())
    })
    .await;
    assert_eq!(hub.audit().count(|event| event.is_list("secrets")), 1);
    stop.cancel();
    tokio::time::timeout(SOON * 3, running)
        .await
        .expect("the manager stops")
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_26_forty_tasks_index_get_list_and_remove_twenty_clusters_at_once() {
    const MANY: usize = 20;
    let (hub, _members) = world(MANY).await;
    let fleet = Fleet::builder()
        .provider(provider(&hub))
        .settings(|settings| settings.access_policy = locally())
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });
    eventually("all are there", SOON, || fleet.clusters().len() == MANY).await;
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..40)
        .map(|n: usize| {
            let (fleet, hub, over) = (fleet.clone(), hub.clone(), over.clone());
            tokio::spawn(async move {
                let name = format!("member-{:04}", n % MANY);
                let mut rounds = 0;
                while !over.load(Ordering::SeqCst) || rounds < 10 {
                    rounds += 1;
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
    tokio::time::sleep(Duration::from_secs(2)).await;
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        tokio::time::timeout(SOON, task)
            .await
            .expect("nothing locks up")
            .unwrap();
    }
    eventually("all are there again, and answer", SOON * 3, || {
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
    eventually("none is left", SOON, || fleet.clusters().is_empty()).await;
    stop.cancel();
    tokio::time::timeout(SOON * 3, running)
        .await
        .expect("the fleet stops")
        .unwrap();
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
    let heard = async |provider: KubeconfigProvider| {
        let mut discovery = provider.discover(CancellationToken::new());
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != "synced") {
            heard.push(match discovery.next().await.unwrap().unwrap() {
                Change::Upsert(spec) => format!("+{}", spec.name),
                Change::Broken(broken) => format!("!{}", broken.name),
                Change::Synced => "synced".into(),
                other => panic!("{other:?}"),
            });
        }
        heard
    };
    let builder = || KubeconfigProvider::builder().client(hub.client()).events(false);
    assert_eq!(heard(builder().build().unwrap()).await, ["!mine", "synced"]);
    let all = builder().all_namespaces().build().unwrap();
    let mut heard_all = heard(all).await;
    heard_all.sort();
    assert_eq!(heard_all, ["!default/mine", "!kube-system/elsewhere", "synced"]);
    let other = builder()
        .label("example.com/cluster", "yes")
        .key("value")
        .build()
        .unwrap();
    assert_eq!(heard(other).await, ["synced"]);

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
