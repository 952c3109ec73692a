//! Clusters that are dead, slow or forbidden don't disturb the others.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_core::{ClusterState, WatchRequest};
use mcr_testkit::control_plane::{ControlPlane, KubeconfigBuilder};

use crate::harness::*;

/// Ten contexts: one is silent, one refuses, one may not list. The other seven are listed within two seconds,
/// and each of the three says why it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_healthy_clusters_do_not_wait_for_three_sick_ones() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "hello").await;
    let admin = plane.admin_credentials();
    let at = |server: String| KubeconfigBuilder::new().context("c", server, plane.ca_pem(), admin.clone()).to_yaml();
    // Accepts (by the kernel) and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").or_fail();
    let refusing = {
        let freed = std::net::TcpListener::bind("127.0.0.1:0").or_fail();
        freed.local_addr().or_fail().port()
    };
    let nobody = plane.user("nobody").create().await.or_fail();

    let running = Running::start();
    running.clusters.add(spec("silent", &at(format!("https://{}", silent.local_addr().or_fail()))));
    running.clusters.add(spec("refusing", &at(format!("https://127.0.0.1:{refusing}"))));
    running.clusters.add(spec("forbidden", &nobody.kubeconfig()));
    for i in 0..7 {
        running.clusters.add(spec(&format!("healthy-{i}"), &plane.kubeconfig()));
    }
    let started = Instant::now();
    let mut events = running.fleet.subscribe();
    let mut watches = Vec::new();
    while watches.len() < 10 {
        if let mcr_core::FleetEvent::Engaged(cluster) = events.next().await {
            let (handle, log) = watch_config_maps(&cluster);
            watches.push((cluster, handle, log));
        }
    }
    for (cluster, _, log) in &watches {
        if cluster.name().starts_with("healthy") {
            let left = Duration::from_secs(2).saturating_sub(started.elapsed());
            eventually(left, &format!("{} is listed within 2 s of the start", cluster.name()), || log.has("+hello").then_some(())).await;
        }
    }
    let of = |name: &str| watches.iter().find(|(cluster, ..)| *cluster.name() == *name).map(|(cluster, ..)| cluster.clone()).unwrap();

    let refusing = of("refusing");
    eventually(Duration::from_secs(5), "the refusing one says so", || {
        (refusing.state().reason() == Some("can't connect: connection refused: nothing listens at this address; the API server may be down")).then_some(())
    })
    .await;
    let forbidden = of("forbidden");
    eventually(Duration::from_secs(5), "the forbidden one is ready and names the kind", || {
        let kinds = forbidden.kinds();
        let problem = kinds[0].problem.clone()?;
        (forbidden.state().is_ready()
            && problem.starts_with("forbidden: configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\"")
            && problem.ends_with("Grant list and watch on it to the credentials in use"))
        .then_some(())
    })
    .await;
    let silent_one = of("silent");
    eventually(Duration::from_secs(30), "the silent one says so within 30 s", || {
        match silent_one.state() {
            ClusterState::Unreachable { reason } if reason.contains("no answer") || reason.contains("timed out") => Some(()),
            _ => None,
        }
    })
    .await;

    nobody.allow(may_read_config_maps()).await.or_fail();
    synced(&forbidden, Duration::from_secs(20)).await;
    assert!(forbidden.kinds()[0].problem.is_none());
    running.stop().await;
}

/// Promise 5: one kind failing leaves the cluster's other kinds running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_forbidden_kind_leaves_the_others_of_its_cluster_running() {
    let plane = ControlPlane::start().await.or_fail();
    let user = plane.user("reader").rules(may_read_config_maps()).create().await.or_fail();
    let running = Running::start();
    let cluster = running.join("a", &user.kubeconfig()).await;
    let _secrets = cluster.watch(WatchRequest::of::<Secret>(), None).or_fail();
    let (_maps, log) = watch_config_maps(&cluster);
    synced(&cluster, Duration::from_secs(10)).await;
    create(&plane, "seen").await;
    eventually(Duration::from_secs(10), "seen", || log.has("+seen").then_some(())).await;
    assert!(!cluster.store::<Secret>().or_fail().is_synced());
    assert!(cluster.store::<ConfigMap>().or_fail().is_synced());
    running.stop().await;
}
