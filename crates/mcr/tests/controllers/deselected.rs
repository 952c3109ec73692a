//! Clusters that a controller selects no longer, or not before they pass a check.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    ApiAccess, Dropped, Seen, World,
    maps::{Fallible, keys, maps},
    sleep, until_true,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::ListParams};
use mcr::{
    BoxError, Cluster, ClusterSelector, Fleet, FleetBuilder, FleetEvent, HUB, ReadyCheck, Request,
    RequestKey, WatchOptions,
};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};

const COPY: &str = "example.io/copy";
const PROD: &[(&str, &str)] = &[("env", "prod")];
const TEST: &[(&str, &str)] = &[("env", "test")];

fn prod() -> ClusterSelector {
    ClusterSelector::label("env", "prod")
}

fn map(name: &str, labels: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "labels": labels});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn has(server: &SimCluster, name: &str) -> bool {
    server.get("configmaps", &format!("default/{name}")).is_some()
}

async fn copy(request: Request<ConfigMap>, _: Arc<Seen<()>>) -> Fallible {
    if request.live().is_none() {
        let copy = serde_json::from_value(map(request.name(), json!({COPY: "yes"})))?;
        let copies = request.api::<ConfigMap>();
        copies.create(&Default::default(), &copy).await?;
    }
    Ok(())
}

/// Fails until the hub has listed.
fn to_each(event: &FleetEvent, fleet: &Fleet) -> Result<Vec<RequestKey>, BoxError> {
    let (FleetEvent::Engaged(to) | FleetEvent::Updated(to)) = event else {
        return Ok(Vec::new());
    };
    let originals = fleet.get(HUB)?.store::<ConfigMap>()?.keys()?.into_iter();
    let of_copy = |key| RequestKey::new(to.name().clone(), key);
    Ok(originals.map(of_copy).collect())
}

async fn remove_copies(cluster: Cluster, _: Fleet) -> Fallible {
    let copies = cluster.namespaced::<ConfigMap>("default");
    for copy in copies.list_metadata(&ListParams::default().labels(COPY)).await? {
        copies.delete(&copy.name_any(), &Default::default()).await?;
    }
    Ok(())
}

/// A program copies what the hub has into chosen clusters. What it wrote goes when a cluster loses the label, also if that
/// happened while the program was down. What others wrote stays.
#[tokio::test(start_paused = true)]
async fn a_copy_goes_when_its_cluster_loses_the_label_also_while_the_program_is_down() {
    let [hub, eu, us] = [(); 3].map(|()| SimCluster::new());
    hub.create(map("settings", json!({}))).unwrap();
    hub.create(map("marked", json!({COPY: "yes"}))).unwrap();
    let accesses = [&hub, &eu, &us].map(|server| ApiAccess::from(server.client()));
    let start = |eu_is, us_is| {
        let mut world = World::new();
        for (at, name, labels) in [(0, HUB, &[][..]), (1, "eu", eu_is), (2, "us", us_is)] {
            world.add(name, &accesses[at], labels);
        }
        let of_hub = WatchOptions::new().clusters(ClusterSelector::hub());
        let of_hub = of_hub.request(|watch| watch.fields("metadata.name=settings"));
        let controller = maps()
            .clusters(prod())
            .watch_request(|watch| watch.labels(COPY))
            .watches_with(&(), |_: mcr::Watched<ConfigMap>| Vec::<RequestKey>::new(), of_hub)
            .try_watches_fleet(to_each)
            .on_deselected(remove_copies);
        world.run_with(controller, copy);
        world
    };
    let world = start(PROD, PROD);
    until_true(|| has(&eu, "settings") && has(&us, "settings")).await;
    eu.create(map("own", json!({}))).unwrap();
    world.add("eu", &accesses[1], TEST);
    until_true(|| !has(&eu, "settings")).await;
    world.add("eu", &accesses[1], PROD);
    until_true(|| has(&eu, "settings")).await;
    world.end().await;

    let world = start(PROD, TEST);
    until_true(|| !has(&us, "settings")).await;
    assert!(has(&eu, "settings") && has(&eu, "own") && has(&hub, "marked"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_waits_for_running_reconciles_and_is_repeated_until_it_succeeds() {
    let (mut world, a) = (World::new(), ApiAccess::default());
    a.put_map("ns/x", "1");
    world.add("a", &a, PROD);
    let seen: Seen<String> = Seen::default();
    let lines = seen.clone();
    let clean_up = move |cluster: Cluster, _| {
        let lines = lines.clone();
        async move {
            lines.push(format!("clean {}", cluster.name()));
            match lines.len() {
                2 => Err("refused".into()),
                3 => panic!("at once"),
                4 => pending().await,
                7 => {
                    let _dropped = Dropped(Arc::new(lines));
                    pending().await
                }
                _ => Ok(()),
            }
        }
    };
    let reconcile = async |request: Request<ConfigMap>, seen: Arc<Seen<String>>| {
        request.token().cancelled().await;
        sleep(5_000).await;
        seen.push("reconciled");
        Ok::<_, BoxError>(())
    };
    let controller = maps().clusters(prod()).on_deselected(clean_up);
    let handle = world.run(controller.build(reconcile, Arc::new(seen.clone())).unwrap());
    until_true(|| handle.status().queue.running == 1).await;
    world.join(HUB);
    world.add("a", &a, TEST);
    sleep(600_000).await;
    let of_a = ["reconciled", "clean a", "clean a", "clean a", "clean a"];
    assert_eq!(seen.all(), of_a, "and the hub is left alone");
    // It ends when the cluster is selected again. A cluster that was never selected is cleaned up after a while.
    world.add("a", &a, PROD);
    until_true(|| handle.status().queue.running == 1).await;
    world.add("a", &a, TEST);
    seen.wait_for(7).await;
    world.add("a", &a, PROD);
    world.join("b");
    sleep(9_000).await;
    assert_eq!(seen.all()[5..], ["reconciled", "clean a", "dropped"]);
    sleep(600_000).await;
    assert_eq!(seen.all()[8..], ["clean b"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_works_where_a_check_passes_and_a_check_that_fails_hurts_no_other_cluster() {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let widgets = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let runs = AtomicUsize::new(0);
    let moody = ReadyCheck::new(move |cluster: Cluster| {
        let is_well = *cluster.name() == "well";
        let run = if is_well {
            runs.fetch_add(1, Ordering::SeqCst)
        } else {
            0
        };
        async move {
            match (cluster.name().as_str(), run) {
                ("hangs", _) => pending().await,
                ("panics", _) => panic!("at once"),
                // Two failures in a row are no reason to end the work.
                (_, 1 | 2) => Err("a bad moment".into()),
                _ => Ok(()),
            }
        }
    });
    let crds = ReadyCheck::crds_established(["widgets.example.com"]).every(Duration::from_secs(20));
    let checks = |fleet: FleetBuilder| {
        fleet
            .ready_check("widgets", crds)
            .ready_check("moody", moody.every(Duration::from_secs(60)))
    };
    let mut world = World::with_builder(checks);
    let servers = ["hangs", "panics", "well"].map(|cluster| {
        let server = SimCluster::new();
        server.create(map("x", json!({}))).unwrap();
        world.add(cluster, &ApiAccess::from(server.client()), &[]);
        server
    });
    let cleaned: Seen<String> = Seen::default();
    let lines = cleaned.clone();
    let controller = maps()
        .clusters(ClusterSelector::ready("widgets").and(ClusterSelector::ready("moody")))
        .on_deselected(move |cluster, _| {
            lines.push(cluster.name().to_string());
            async { Ok(()) }
        });
    let (handle, seen) = world.run_with(controller, keys);
    sleep(30_000).await;
    assert_eq!(seen.len(), 0);
    for server in &servers {
        server.create(widgets.clone()).unwrap();
    }
    assert_eq!(seen.wait_for(1).await, ["cluster://well/default/x"]);
    let warning = |at: usize| world.fleet.snapshot().clusters[at].warnings.join(", ");
    until_true(|| warning(0) == "it does not pass the check moody: it did not end within 10 s").await;
    until_true(|| warning(1).contains("the check moody: the check of the program panicked")).await;
    sleep(90_000).await;
    assert_eq!((&*warning(2), seen.len()), ("", 1));
    // A CRD that is removed later is noticed.
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    servers[2].delete(crds, "widgets.example.com").unwrap();
    until_true(|| warning(2).contains("does not serve widgets.example.com: its CRD is missing")).await;
    sleep(60_000).await;
    assert!(handle.status().clusters.is_empty());
    assert_eq!(cleaned.len(), 0, "a check that fails is no choice");
    world.end().await;
}
