//! Clusters that are dead, slow or forbidden don't disturb the others.

use std::time::Duration;

use mcr_core::ClusterState;
use mcr_testkit::control_plane::{AuditEvent, ControlPlane, KubeconfigBuilder};

use crate::harness::*;

/// Ten contexts: one is silent, one refuses, one may not list. The other seven are listed while the silent one is still
/// waited for, and the two others say why they are not.
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

    let running = Running::start_with(cut_no_request_short);
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
                log.has("+hello")
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
        refusing.state().reason() == Some("can't connect: connection refused: nothing listens at this address; the API server may be down")
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
}

/// A hundred clusters that join at once cost the API server a hundred lists, as many watches, and one question each for who it
/// is. How long that takes is for the benchmark to say, whose suite `fleet` has a bare loop of lists beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engaging_a_hundred_clusters_costs_little_more_than_a_hundred_lists() {
    const CLUSTERS: usize = 100;
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    create(&plane, "hello").await;
    let mark = plane.audit().await.or_fail().mark();
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_secs(3600);
        cut_no_request_short(settings);
    });
    let mut events = running.fleet.subscribe();
    for i in 0..CLUSTERS {
        running.clusters.add(spec(&format!("c-{i}"), &plane.kubeconfig()));
    }
    let mut joined = Vec::new();
    while joined.len() < CLUSTERS {
        if let mcr_core::FleetEvent::Engaged(cluster) = events.next().await {
            let (watch, log) = watch_config_maps(&cluster);
            joined.push((cluster, watch, log));
        }
    }
    for (cluster, _, log) in &joined {
        synced(cluster).await;
        assert!(log.has("+hello"));
        eventually(SOON, "it is known who it is", || cluster.identity()).await;
    }
    create(&plane, "after").await;
    for (_, _, log) in &joined {
        eventually(SOON, "it is watched", || log.has("+after")).await;
    }
    let audit = plane.audit().await.or_fail().since(mark);
    let asked = |of: &dyn Fn(&AuditEvent) -> bool| {
        audit.count(|event| event.user_agent.contains(" mcr/") && event.is_start() && of(event))
    };
    let who = |event: &AuditEvent| event.verb == "get" && event.name == "kube-system";
    let reported = [
        asked(&|event| event.is_list("configmaps")),
        asked(&|event| event.is_watch_start("configmaps")),
        asked(&who),
        asked(&|_| true),
    ];
    assert_eq!(
        reported,
        [CLUSTERS, CLUSTERS, CLUSTERS, 3 * CLUSTERS],
        "lists, watches, questions and all requests"
    );
    running.stop().await;
}
