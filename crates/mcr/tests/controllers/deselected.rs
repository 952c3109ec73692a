//! Clusters that a controller selects no longer, or not before they pass a check.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::support::{
    ApiAccess, Dropped, Scripted, Seen, Unshown, World,
    maps::{Fallible, keys, maps, record},
    name, sleep, until_true,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{ResourceExt, api::ListParams};
use mcr::{
    BoxError, BuildError, Cluster, ClusterSelector, Controller, Fleet, FleetBuilder, FleetEvent, HUB,
    ObjectKey, ReadyCheck, Request, RequestKey, WatchOptions, Watched,
    core::{BrokenCluster, Change},
};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};

const COPY: &str = "example.io/copy";
const PROD: &[(&str, &str)] = &[("env", "prod")];
const TEST: &[(&str, &str)] = &[("env", "test")];

fn prod() -> ClusterSelector {
    ClusterSelector::label("env", "prod")
}

/// With a provider that has announced all its clusters. Further ones join later.
fn discovered(world: World) -> World {
    world.announce(Change::Synced);
    world
}

/// Records the clusters that the controller cleans up.
fn cleans(controller: Controller<ConfigMap>) -> (Controller<ConfigMap>, Seen<String>) {
    let cleaned: Seen<String> = Seen::default();
    let lines = cleaned.clone();
    let controller = controller.on_deselected(move |cluster, _| {
        lines.push(cluster.name().as_str());
        async { Ok(()) }
    });
    (controller, cleaned)
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
        let mut world = discovered(World::new());
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
    let (mut world, a) = (discovered(World::new()), ApiAccess::default());
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
                3 => Err(Unshown.into()),
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
async fn a_label_that_is_missing_for_a_moment_or_in_most_clusters_deletes_nothing() {
    let mut world = discovered(World::new());
    let (controller, cleaned) = cleans(maps().clusters(prod()));
    let apis = ["a", "b", "c", "d", "e"].map(|cluster| (cluster, ApiAccess::default()));
    let label = |world: &World, clusters: &str, labels| {
        for (cluster, api) in apis.iter().filter(|(cluster, _)| clusters.contains(cluster)) {
            world.add(cluster, api, labels);
        }
    };
    label(&world, "abcde", TEST);
    let (handle, _) = world.run_with(controller, keys);
    sleep(600_000).await;
    assert_eq!(cleaned.len(), 0, "none is selected");
    label(&world, "abcde", PROD);
    until_true(|| handle.status().clusters.len() == 5).await;
    for _ in 0..10 {
        label(&world, "a", TEST);
        sleep(5_000).await;
        label(&world, "a", PROD);
        sleep(5_000).await;
    }
    assert_eq!(cleaned.len(), 0, "a tool wrote the labels in two steps");
    // More than half at once, until the others are as many.
    label(&world, "abc", TEST);
    sleep(600_000).await;
    assert_eq!(cleaned.len(), 0);
    label(&world, "c", PROD);
    assert_eq!(cleaned.sorted(2).await, ["a", "b"]);
    // All at once.
    label(&world, "cde", TEST);
    sleep(600_000).await;
    label(&world, "e", PROD);
    sleep(600_000).await;
    assert_eq!(cleaned.len(), 2);
    label(&world, "d", PROD);
    assert_eq!(cleaned.wait_for(3).await[2], "c");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_function_and_a_missing_property_are_no_reasons_to_delete_and_a_gating_watch_is_waited_for() {
    let (mut world, api) = (discovered(World::new()), ApiAccess::default());
    let tier = &[("env", "tier")];
    let with_tier = api.spec("tier").label("env", "tier").property("tier", "1");
    world.announce(Change::Upsert(with_tier));
    for (cluster, labels) in [("chosen", PROD), ("other", PROD), ("test", TEST)] {
        world.add(cluster, &ApiAccess::default(), labels);
    }
    let hub = world.join(HUB);
    hub.forbid("secrets");
    let chosen = ClusterSelector::matching(|cluster| *cluster.name() == "chosen");
    let of_tier = ClusterSelector::label("env", "tier").and(ClusterSelector::property("tier", "1"));
    let controller = maps().clusters(prod().and(chosen).or(of_tier)).watches_with(
        &(),
        |_: Watched<Secret>| Vec::<RequestKey>::new(),
        WatchOptions::new().clusters(ClusterSelector::hub()),
    );
    let (controller, cleaned) = cleans(controller);
    let (handle, _) = world.run_with(controller, keys);
    until_true(|| handle.status().clusters.contains_key("tier")).await;
    world.add("tier", &api, tier);
    until_true(|| !handle.status().clusters.contains_key("tier")).await;
    sleep(600_000).await;
    assert_eq!((cleaned.len(), handle.status().pending_clean_ups), (0, 1));
    hub.allow("secrets");
    sleep(600_000).await;
    assert_eq!(cleaned.all(), ["test"]);
    assert_eq!(handle.status().pending_clean_ups, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_left_alone_while_another_name_of_it_is_selected_or_it_may_be_the_hub() {
    for allow in [false, true] {
        let mut world = discovered(World::with_settings(|settings| settings.allow_duplicates = allow));
        let [shared, hub, own, other] = [(); 4].map(|()| ApiAccess::default());
        let broken = BrokenCluster::new(name(HUB), "file", "cut short");
        world.announce(Change::Broken(broken));
        world.add("one", &shared, TEST);
        let one = world.cluster("one").await;
        until_true(|| one.state().is_ready()).await;
        world.add("two", &shared, PROD);
        world.add("own", &own, TEST);
        world.add("other", &other, PROD);
        let (controller, cleaned) = cleans(maps().clusters(prod()));
        world.run_with(controller, keys);
        sleep(600_000).await;
        assert_eq!(cleaned.len(), 0, "a cluster may be the hub");
        hub.down(true);
        world.add(HUB, &hub, &[]);
        sleep(600_000).await;
        assert_eq!(cleaned.len(), 0, "a cluster may be the hub");
        let (late, provider) = Scripted::new();
        world.fleet.add_provider(provider);
        hub.down(false);
        sleep(600_000).await;
        assert_eq!(cleaned.len(), 0, "another provider may have other names");
        late.send(Ok(Change::Synced)).unwrap();
        sleep(600_000).await;
        assert_eq!(cleaned.all(), ["own"]);
        world.remove("two");
        assert_eq!(cleaned.wait_for(2).await[1], "one");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_all_clusters_leads_to_no_request_where_the_controller_cleans_up() {
    let (mut world, a) = (discovered(World::new()), ApiAccess::default());
    world.add("a", &a, PROD);
    let hub = world.join(HUB);
    let same = |secret: Watched<Secret>| ObjectKey::of(&*secret.object);
    let of_all = WatchOptions::new().clusters(ClusterSelector::all());
    let to_a =
        |_: &FleetEvent, _: &Fleet| vec![RequestKey::new(name("a"), ObjectKey::namespaced("ns", "fleet"))];
    let controller = maps().clusters(prod()).watches_with(&(), same, of_all);
    let (controller, cleaned) = cleans(controller.watches_fleet(to_a));
    let (handle, seen) = world.run_with(controller, keys);
    a.put("secrets", "ns/s", json!({}));
    let of_a = ["cluster://a/ns/fleet", "cluster://a/ns/s"];
    until_true(|| of_a.iter().all(|key| seen.all().iter().any(|seen| seen == key))).await;
    world.add("a", &a, TEST);
    cleaned.wait_for(1).await;
    let before = seen.len();
    a.put("secrets", "ns/t", json!({}));
    hub.put("secrets", "ns/h", json!({}));
    assert_eq!(seen.wait_for(before + 1).await[before..], ["cluster://hub/ns/h"]);
    sleep(60_000).await;
    assert_eq!(seen.len(), before + 1);
    assert!(handle.status().counts.misdirected >= 2);
    let clusters = handle.status().clusters;
    assert!(clusters["a"].gate.is_open(), "it is still watched");
    world.add("a", &a, PROD);
    let all = ["cluster://a/ns/fleet", "cluster://a/ns/s", "cluster://a/ns/t"];
    assert_eq!(seen.wait_for(before + 4).await.split_off(before + 1).len(), 3);
    sleep(60_000).await;
    let mut again = seen.all().split_off(before + 1);
    again.sort();
    assert_eq!(again, all);
    assert_eq!(cleaned.len(), 1);
    world.end().await;
    let of_hub = cleans(maps().clusters(ClusterSelector::hub())).0;
    let error = of_hub.build(keys, Arc::new(Seen::default())).unwrap_err();
    assert!(matches!(error, BuildError::CleansUpAllButHub { .. }), "{error}");
}

/// In real time, because the clean-up holds its thread: only so it does not end at once when it is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_that_is_selected_again_is_not_reconciled_before_its_clean_up_has_ended() {
    let (mut world, a) = (discovered(World::new()), ApiAccess::default());
    a.put_map("ns/x", "1");
    world.add("a", &a, PROD);
    let (seen, (go_on, goes_on)) = (Seen::<String>::default(), mpsc::channel());
    let of_clean_up = (seen.clone(), Arc::new(Mutex::new(goes_on)));
    let controller = maps().clusters(prod()).on_deselected(move |_, _| {
        let (seen, goes_on) = of_clean_up.clone();
        async move {
            seen.push("cleans");
            let _dropped = Dropped(Arc::new(seen));
            tokio::task::block_in_place(|| {
                goes_on
                    .lock()
                    .unwrap()
                    .recv_timeout(Duration::from_secs(60))
                    .unwrap()
            });
            pending().await
        }
    });
    let handle = world.run(controller.build(record, Arc::new(seen.clone())).unwrap());
    seen.wait_for(1).await;
    world.add("a", &a, TEST);
    seen.wait_for(2).await;
    world.add("a", &a, PROD);
    let is_listed = || {
        handle
            .status()
            .clusters
            .get("a")
            .is_some_and(|a| a.gate.is_open())
    };
    until_true(is_listed).await;
    sleep(500).await;
    assert_eq!(seen.len(), 2);
    assert!(handle.status().clusters["a"].parked);
    go_on.send(()).unwrap();
    let x = "cluster://a/ns/x live 1";
    assert_eq!(seen.wait_for(4).await, [x, "cleans", "dropped", x]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn clean_ups_that_hang_keep_no_other_cluster_waiting() {
    let mut world = discovered(World::new());
    let api = ApiAccess::default();
    world.add("prod", &api, PROD);
    let hangs: Vec<ApiAccess> = (0..40).map(|at| world.join(&format!("hangs-{at}"))).collect();
    let cleaned: Seen<String> = Seen::default();
    let lines = cleaned.clone();
    let controller = maps().clusters(prod()).on_deselected(move |cluster, _| {
        let lines = lines.clone();
        async move {
            if cluster.name().starts_with("hangs") {
                pending::<()>().await;
            }
            lines.push(cluster.name().as_str());
            Ok(())
        }
    });
    world.run_with(controller, keys);
    sleep(2_000).await;
    let well = world.join("well");
    sleep(20_000).await;
    assert_eq!(cleaned.all(), ["well"]);
    drop((hangs, well));
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
    let mut world = discovered(World::with_builder(checks));
    let servers = ["hangs", "panics", "well"].map(|cluster| {
        let server = SimCluster::new();
        server.create(map("x", json!({}))).unwrap();
        world.add(cluster, &ApiAccess::from(server.client()), &[]);
        server
    });
    let checked = ClusterSelector::ready("widgets").and(ClusterSelector::ready("moody"));
    let (controller, cleaned) = cleans(maps().clusters(checked));
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
