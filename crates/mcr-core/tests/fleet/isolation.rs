//! Clusters that are dead, slow or forbidden don't disturb the others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_core::{ClusterState, WatchRequest};
use mcr_testkit::control_plane::{ControlPlane, KubeconfigBuilder};

use crate::harness::*;

/// Ten contexts: one is silent, one refuses, one may not list. The other seven are listed while the silent one is still
/// waited for, and each of the three says why it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_healthy_clusters_do_not_wait_for_three_sick_ones() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "hello").await;
    let admin = plane.admin_credentials();
    let at = |server: String| {
        KubeconfigBuilder::new()
            .context("c", server, plane.ca_pem(), admin.clone())
            .to_yaml()
    };
    // Accepts (by the kernel) and never answers.
    let silent_server = std::net::TcpListener::bind("127.0.0.1:0").or_fail();
    let refusing = {
        let freed = std::net::TcpListener::bind("127.0.0.1:0").or_fail();
        freed.local_addr().or_fail().port()
    };
    let nobody = plane.user("nobody").create().await.or_fail();

    // So that nobody who waits for the silent one ends that wait by patience.
    let running = Running::start_with(|settings| {
        let transport = Arc::make_mut(&mut settings.transport);
        transport.connect_timeout = Duration::from_secs(3600);
        transport.head_timeout = Duration::from_secs(3600);
    });
    let silent = at(format!("https://{}", silent_server.local_addr().or_fail()));
    running.clusters.add(spec("silent", &silent));
    running
        .clusters
        .add(spec("refusing", &at(format!("https://127.0.0.1:{refusing}"))));
    running.clusters.add(spec("forbidden", &nobody.kubeconfig()));
    for i in 0..7 {
        running
            .clusters
            .add(spec(&format!("healthy-{i}"), &plane.kubeconfig()));
    }
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
            eventually(SOON, format!("{} is listed", cluster.name()), || {
                log.has("+hello").then_some(())
            })
            .await;
        }
    }
    let of = |name: &str| {
        watches
            .iter()
            .find(|(cluster, ..)| *cluster.name() == *name)
            .map(|(cluster, ..)| cluster.clone())
            .unwrap()
    };

    assert_eq!(of("silent").state(), ClusterState::Connecting);

    let refusing = of("refusing");
    eventually(SOON, "the refusing one says so", || {
        (refusing.state().reason() == Some("can't connect: connection refused: nothing listens at this address; the API server may be down")).then_some(())
    })
    .await;
    let forbidden = of("forbidden");
    eventually(SOON, "the forbidden one is ready and names the kind", || {
        let kinds = forbidden.kinds();
        let problem = kinds[0].problem.clone()?;
        (forbidden.state().is_ready()
            && problem.starts_with(
                "forbidden: configmaps is forbidden: User \"nobody\" cannot list resource \"configmaps\"",
            )
            && problem.ends_with("Grant list and watch on it to the credentials in use"))
        .then_some(())
    })
    .await;
    nobody.allow(may_read_config_maps()).await.or_fail();
    synced(&forbidden).await;
    assert!(forbidden.kinds()[0].problem.is_none());
    running.stop().await;

    let running = Running::start_with(|settings| {
        Arc::make_mut(&mut settings.transport).connect_timeout = Duration::from_secs(1);
    });
    let silent = running.join("silent", &silent).await;
    eventually(SOON, "the silent one says so", || {
        let reason = silent.state().reason()?.to_owned();
        reason.contains("no connection within 1 s").then_some(())
    })
    .await;
    running.stop().await;
}

/// Promise 5: one kind failing leaves the cluster's other kinds running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_forbidden_kind_leaves_the_others_of_its_cluster_running() {
    let plane = ControlPlane::start().await.or_fail();
    let user = plane
        .user("reader")
        .rules(may_read_config_maps())
        .create()
        .await
        .or_fail();
    let running = Running::start();
    let cluster = running.join("a", &user.kubeconfig()).await;
    let _secrets = cluster.watch(WatchRequest::of::<Secret>(), None).or_fail();
    let (_maps, log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    create(&plane, "seen").await;
    eventually(SOON, "seen", || log.has("+seen").then_some(())).await;
    assert!(!cluster.store::<Secret>().or_fail().is_synced());
    assert!(cluster.store::<ConfigMap>().or_fail().is_synced());
    running.stop().await;
}

/// Engaging a hundred clusters takes at most one and a half times as long as a bare loop of a hundred lists. Whatever else
/// the machine does only adds to either, so the shortest of several rounds is compared, and there are more where it does much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engaging_a_hundred_clusters_costs_little_more_than_a_hundred_lists() {
    const CLUSTERS: usize = 100;
    const LEAST: usize = 3;
    const MOST: usize = 20;
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "hello").await;
    let kubeconfig = plane.kubeconfig();
    let (mut bare, mut engaged) = (Duration::MAX, Duration::MAX);
    let mut rounds = 0;
    while rounds < LEAST || (rounds < MOST && engaged > bare.mul_f64(1.5)) {
        bare = bare.min(bare_lists(&kubeconfig, CLUSTERS).await);
        engaged = engaged.min(engage(&kubeconfig, CLUSTERS).await);
        rounds += 1;
    }
    let ratio = engaged.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{CLUSTERS} clusters: bare lists {bare:?}, engaged {engaged:?}, ratio {ratio:.2} (shortest of {rounds})"
    );
    assert!(
        ratio <= 1.5,
        "engaging takes {ratio:.2}x as long as bare lists ({engaged:?} against {bare:?})"
    );
}

/// A connection of its own and one list for each, all at once.
async fn bare_lists(kubeconfig: &str, count: usize) -> Duration {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).or_fail();
    let started = Instant::now();
    let lists = (0..count).map(|_| {
        let kubeconfig = kubeconfig.clone();
        tokio::spawn(async move {
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
                .await
                .or_fail();
            let api = kube::Api::<ConfigMap>::all(kube::Client::try_from(config).or_fail());
            assert!(!api.list(&Default::default()).await.or_fail().items.is_empty());
        })
    });
    futures::future::try_join_all(lists).await.or_fail();
    started.elapsed()
}

/// From the announcement of the clusters until each has been listed.
async fn engage(kubeconfig: &str, count: usize) -> Duration {
    let running = Running::start();
    let mut events = running.fleet.subscribe();
    let started = Instant::now();
    for i in 0..count {
        running.clusters.add(spec(&format!("c-{i}"), kubeconfig));
    }
    let mut watches = Vec::new();
    while watches.len() < count {
        if let mcr_core::FleetEvent::Engaged(cluster) = events.next().await {
            let (watch, _log) = watch_config_maps(&cluster);
            watches.push((cluster, watch));
        }
    }
    for (cluster, _) in &watches {
        synced(cluster).await;
    }
    let took = started.elapsed();
    running.stop().await;
    took
}
