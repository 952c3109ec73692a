//! A program that reads the fleet before the fleet is there: its report is empty, and nothing fails.

use std::{sync::Arc, time::Duration};

use futures::poll;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_core::{Access, Change, ClusterSpec, ClusterState, Fleet, FleetSnapshot, WatchRequest};
use mcr_testkit::waiting::Background;
use tokio::{sync::Semaphore, time::Instant};

use mcr_doubles::scripted::{Answer, Server};

use crate::{
    common::provider::{Clusters, announced},
    harness::*,
};

/// An hour of paused time passes only if nothing else ends a wait.
const AN_HOUR: Duration = Duration::from_secs(3600);

/// A fleet that does not run yet, whose discovery ends when the test says so.
fn reported() -> (Clusters, Fleet) {
    let (clusters, provider) = announced(false);
    (clusters, Fleet::builder().provider(provider).build())
}

fn dead() -> Access {
    refuses(|| ())
}

fn run(fleet: &Fleet) -> Background<()> {
    let fleet = fleet.clone();
    Background::start(|stop| async move { fleet.run(stop).await })
}

/// Why each cluster is not ready.
fn why(fleet: &FleetSnapshot) -> Vec<(&str, Option<String>)> {
    let clusters = fleet.clusters.iter();
    clusters
        .map(|cluster| (cluster.name.as_str(), cluster.not_ready()))
        .collect()
}

/// The clusters join in tasks of their own, many more than run before the task that waits.
#[tokio::test(start_paused = true)]
async fn after_discovery_every_announced_cluster_is_in_the_fleet() {
    const CLUSTERS: usize = 500;
    let (clusters, fleet) = reported();
    let mut discovered = Box::pin(fleet.discovered());
    assert!(poll!(&mut discovered).is_pending(), "the fleet does not run");
    let running = run(&fleet);
    for at in 0..CLUSTERS {
        if at == 1 {
            eventually("the first has joined", || fleet.get("c0").ok()).await;
            assert!(poll!(&mut discovered).is_pending(), "more clusters may come");
        }
        let spec = ClusterSpec::new(name(&format!("c{at}")), dead());
        clusters.add(spec);
    }
    clusters.send(Change::Synced);
    assert!(discovered.await);
    assert_eq!(fleet.clusters().len(), CLUSTERS);
    assert!(fleet.is_discovered() && fleet.discovered().await);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_stops_ends_every_wait_for_its_clusters() {
    let (clusters, fleet) = reported();
    let started = Instant::now();
    let (discovered, ready) = tokio::join!(
        tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.discovered().await }
        }),
        async {
            let ready = tokio::spawn({
                let fleet = fleet.clone();
                async move { fleet.ready(AN_HOUR).await }
            });
            let running = run(&fleet);
            let spec = ClusterSpec::new(name("a"), dead());
            clusters.add(spec);
            eventually("it has joined", || fleet.get("a").ok()).await;
            running.stop().await;
            ready.await
        }
    );
    assert!(!discovered.unwrap());
    assert!(!ready.unwrap().providers[0].synced);
    assert!(started.elapsed() < AN_HOUR, "{:?}", started.elapsed());
}

/// A snapshot without clusters must not read as a fleet in which everything is ready.
#[tokio::test(start_paused = true)]
async fn a_report_waits_for_discovery_until_the_limit_and_reports_that_it_is_not_complete() {
    let (clusters, fleet) = reported();
    let limit = Duration::from_secs(30);
    let started = Instant::now();
    let idle = fleet.ready(limit).await;
    assert_eq!(started.elapsed(), limit);
    let unknown = "provider announced has not announced all its clusters: its discovery has not ended";
    assert_eq!(idle.not_ready(), [unknown]);

    let running = run(&fleet);
    let spec = ClusterSpec::new(name("a"), dead()).suspended("asleep");
    clusters.add(spec);
    let half = fleet.ready(limit).await;
    assert_eq!(half.not_ready(), [unknown, "cluster a: Suspended: asleep"]);

    // It ends at once when discovery does.
    let started = Instant::now();
    let (all, ()) = tokio::join!(fleet.ready(AN_HOUR), async {
        for_millis(1000).await;
        clusters.send(Change::Synced);
    });
    assert_eq!(all.not_ready(), ["cluster a: Suspended: asleep"]);
    assert!(started.elapsed() < limit, "{:?}", started.elapsed());
    running.stop().await;
}

/// The list of the ConfigMaps waits for a permit, and that of the Secrets is forbidden.
pub(crate) fn gated() -> (Server, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let server = Server::in_memory(move |asked| match (asked.is_watch(), &*asked.path) {
        (true, _) => quiet(),
        (false, SECRETS) => Answer::status(403, "Forbidden", "secrets are forbidden"),
        (false, MAPS) => {
            let list = list_object(10, [map("a", 1)]).to_string();
            Answer::begin().gate(&held).chunk(list).end()
        }
        _ => list(10, []),
    });
    (server, gate)
}

#[tokio::test(start_paused = true)]
async fn a_report_waits_for_the_good_clusters_and_names_the_others() {
    let running = Running::start();
    let (server, gate) = gated();
    let good = running.join_by("good", server.access()).await;
    let maps = good.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    let asleep = ClusterSpec::new(name("asleep"), dead()).suspended("it is cheaper at night");
    running.clusters.add(asleep);
    running
        .clusters
        .broken(name("broken"), "file /broken.yaml", "the file is empty");
    ready(&good).await;
    eventually("it is asked", || server.lists(MAPS).pop()).await;
    let started = Instant::now();
    let mut report = Box::pin(running.fleet.ready(AN_HOUR));
    for_millis(1000).await;
    assert!(poll!(&mut report).is_pending(), "a kind is not listed");
    gate.add_permits(1);
    let others = [
        ("asleep", Some("Suspended: it is cheaper at night".to_owned())),
        (
            "broken",
            Some("Broken: file /broken.yaml: the file is empty".to_owned()),
        ),
        ("good", None),
    ];
    assert_eq!(why(&report.await), others);
    assert!(started.elapsed() < AN_HOUR, "{:?}", started.elapsed());
    assert!(maps.status().synced);
    let error = running.fleet.get("broken").unwrap_err().to_string();
    let unusable = "its description can't be used: file /broken.yaml: the file is empty";
    assert_eq!(error, format!("cluster broken not found: {unusable}"));

    // One dead cluster takes the limit, and nothing from the others.
    let cluster = running.join_by("dead", dead()).await;
    let started = Instant::now();
    let report = running.fleet.ready(Duration::from_secs(30)).await;
    assert!(started.elapsed() >= Duration::from_secs(30));
    let ClusterState::Unreachable { reason } = cluster.state() else {
        panic!("{}", cluster.state())
    };
    let mut expected = others.to_vec();
    expected.insert(2, ("dead", Some(format!("Unreachable: {reason}"))));
    assert_eq!(why(&report), expected);

    // It is removed while a report waits for it.
    let report = running.fleet.ready(AN_HOUR);
    let (report, ()) = tokio::join!(report, async {
        for_millis(1000).await;
        running.clusters.remove(&name("dead"));
    });
    assert_eq!(
        report.clusters.iter().filter(|c| c.not_ready().is_none()).count(),
        1
    );
    assert!(started.elapsed() < AN_HOUR, "{:?}", started.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_names_the_kind_that_is_not_listed_and_why() {
    let running = Running::start();
    let (server, _gate) = gated();
    let cluster = running.join_by("a", server.access()).await;
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    let secrets = cluster.watch(WatchRequest::of::<Secret>(), None).unwrap();
    let report = running.fleet.ready(Duration::from_secs(30)).await;
    assert_eq!(why(&report), [("a", Some("configmaps is not listed".to_owned()))]);
    drop(maps);
    let report = running.fleet.ready(Duration::from_secs(30)).await;
    let problem = secrets.status().problem.expect("it is forbidden").error;
    let expected = format!("secrets is not listed: {problem}");
    assert_eq!(why(&report), [("a", Some(expected))]);

    // What a report waits for can end in other ways: the watch ends, or the cluster is suspended.
    let started = Instant::now();
    let (report, ()) = tokio::join!(running.fleet.ready(AN_HOUR), async {
        for_millis(1000).await;
        drop(secrets);
    });
    assert_eq!(why(&report), [("a", None)]);
    let _secrets = cluster.watch(WatchRequest::of::<Secret>(), None).unwrap();
    let (report, ()) = tokio::join!(running.fleet.ready(AN_HOUR), async {
        for_millis(1000).await;
        let spec = ClusterSpec::new(name("a"), server.access());
        running.clusters.add(spec.suspended("it moves"));
    });
    assert_eq!(why(&report), [("a", Some("Suspended: it moves".to_owned()))]);
    assert!(started.elapsed() < AN_HOUR, "{:?}", started.elapsed());
    running.stop().await;
}
