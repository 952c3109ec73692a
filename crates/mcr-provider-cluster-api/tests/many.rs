//! A thousand Clusters at once, that lead to simulated clusters over TLS.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use mcr_core::{ClusterState, Fleet, FleetSettings};
use mcr_testkit::{
    sim::{SimCluster, SimFleet},
    waiting::{self, Background},
};
use serde_json::json;
use support::{builder, cluster, gets, hub_of, initialized, locally, secret};

/// What never comes is given up after this.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request that a slow machine cuts short is made again, and counted twice: so none is cut short.
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
async fn a_thousand_clusters_are_engaged_for_one_list_of_each_kind_and_one_read_of_each_secret() {
    const MANY: usize = 1000;
    let name = |n: usize| format!("member-{n:04}");
    let members = (0..MANY).map(|n| SimCluster::builder().name(name(n)).build());
    let members = SimFleet::serve(members).await.unwrap();
    let hub = hub_of(
        SimCluster::builder().history(10 * MANY).audit_limit(100_000),
        &["v1beta1", "v1beta2"],
    );
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    for n in 0..MANY {
        // As long as with a certificate and a key of RSA 2048: what follows the last document is a comment.
        let kubeconfig = format!(
            "{}\n# {}",
            members.kubeconfig(&name(n)).unwrap(),
            "x".repeat(4_000)
        );
        hub.create(secret("fleet", &name(n), kubeconfig)).unwrap();
        hub.create(initialized(cluster("fleet", &name(n)))).unwrap();
    }
    let fleet = Fleet::builder()
        .provider(builder(&hub).namespace("fleet").build().unwrap())
        .settings(|settings| {
            settings.access_policy = locally();
            in_an_hour(settings);
        })
        .build();
    let running = Background::start({
        let fleet = fleet.clone();
        |stop| async move { fleet.run(stop).await }
    });
    eventually("all are engaged", || {
        let clusters = fleet.clusters();
        clusters.len() == MANY
            && clusters
                .iter()
                .all(|cluster| cluster.state() == ClusterState::Ready)
    })
    .await;
    assert!(fleet.is_discovered());

    // All Clusters are touched, and nothing is read.
    for n in 0..MANY {
        let mut there = hub
            .get("clusters.cluster.x-k8s.io", &format!("fleet/{}", name(n)))
            .unwrap();
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
    for kind in ["clusters", "secrets"] {
        let lists = audit.count(|event| event.is_list(kind));
        let watches = audit.count(|event| event.is_watch_start(kind));
        assert_eq!((lists, watches), (1, 1), "of {kind}");
    }
    assert_eq!(gets(&hub), MANY);
    assert_eq!(
        audit
            .count(|event| event.uri.starts_with("/apis/cluster.x-k8s.io?")
                || event.uri == "/apis/cluster.x-k8s.io"),
        1
    );
    running.stop().await;
}
