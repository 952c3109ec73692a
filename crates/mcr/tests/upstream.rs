//! The cases of the tests of multicluster-runtime for its builder and source, as far as no other file here has them.
//! `docs/comparison.md` lists every case; the numbers are those of its table.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    core::v1::ConfigMap,
};
use kube::{Resource, ResourceExt, core::PartialObjectMeta};
use mcr::{
    BoxError, ClusterSelector, Controller, ObjectKey, OwnsOptions, Predicate, Request, WatchOptions,
    WatchRequest, Watched,
};
use mcr_testkit::log::Log;
use serde_json::{Value, json};
use support::{Seen, World, name, sleep, until_true};
use tracing::Level;

async fn keys<K>(request: Request<K>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    seen.push(request.key.to_string());
    Ok(())
}

/// A ReplicaSet that a Deployment owns, controlling it or not.
fn owned(deployment: &str, controller: bool) -> Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": "0", "controller": controller}
    ]}})
}

/// The Deployment that controls a ReplicaSet, found without `owns`.
fn controller_of(set: &Watched<ReplicaSet>) -> Option<ObjectKey> {
    let owner = set
        .object
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    (owner.kind == "Deployment")
        .then(|| ObjectKey::namespaced(set.object.namespace().unwrap(), owner.name.clone()))
}

#[test]
fn b_01_a_primary_kind_with_an_owned_one_builds() {
    let controller = Controller::<Deployment>::new("deployments").owns::<ReplicaSet>();
    let built = controller.build(keys, Arc::default()).unwrap();
    assert_eq!(built.name(), "deployments");
}

/// The most reconciles that ran at once.
#[derive(Default)]
struct Most {
    running: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
}

async fn slowly(_: Request<ConfigMap>, most: Arc<Most>) -> Result<(), BoxError> {
    let running = most.running.fetch_add(1, Ordering::SeqCst) + 1;
    most.most.fetch_max(running, Ordering::SeqCst);
    sleep(1_000).await;
    most.running.fetch_sub(1, Ordering::SeqCst);
    most.ended.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b_12_as_many_reconciles_run_at_once_as_the_controller_reports() {
    // The limit of all clusters, the limit of each of three clusters, and the highest number that may run.
    for (total, each, expected) in [(2, 8, 2), (256, 1, 3), (1, 1, 1), (256, 8, 12)] {
        let mut world = World::new();
        for cluster in ["a", "b", "c"] {
            let api = world.join(cluster);
            (0..4).for_each(|i| api.put_map(&format!("ns/{i}"), "1"));
        }
        let most = Arc::<Most>::default();
        let controller = Controller::<ConfigMap>::new("maps")
            .concurrency(total)
            .cluster_concurrency(each);
        world.run(controller.build(slowly, most.clone()).unwrap());
        until_true(|| most.ended.load(Ordering::SeqCst) == 12).await;
        assert_eq!(
            most.most.load(Ordering::SeqCst),
            expected,
            "{total} in all, {each} in each"
        );
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b_15_whatever_a_reconciler_logs_reports_for_which_object_of_which_cluster() {
    let log = Log::of_this_thread(Level::INFO);
    let mut world = World::new();
    let a = world.join("zoo");
    a.put_map("ns/lion", "1");
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        tracing::info!("hungry");
        sleep(10).await;
        tracing::info!("fed");
        if request.attempt == 0 {
            Err(BoxError::from("once more"))
        } else {
            Ok(())
        }
    };
    world.run(
        Controller::<ConfigMap>::new("animals")
            .build(reconcile, Arc::new(()))
            .unwrap(),
    );
    until_true(|| log.lines_with("fed").len() == 2).await;
    // The status of the controller has the failure too.
    for (words, attempts) in [("hungry", 2), ("fed", 2), ("once more", 1)] {
        let lines = log.lines_with(words);
        assert_eq!(lines.len(), attempts, "{lines:?}");
        for (attempt, line) in lines.iter().enumerate() {
            let span = format!(
                "reconcile{{controller=animals cluster=zoo namespace=\"ns\" name=lion attempt={}}}: ",
                attempt + 1
            );
            assert!(line.contains(&span), "{line}");
        }
    }
    world.end().await;
}

/// Fault 49 of the comparison: a live change does not wait behind a first listing.
#[tokio::test(start_paused = true)]
async fn live_changes_overtake_a_first_listing() {
    let (mut world, a) = World::with_a();
    (0..500).for_each(|i| a.put_map(&format!("ns/{i}"), "1"));
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        sleep(10).await;
        seen.push(request.name());
        Ok::<_, BoxError>(())
    };
    let controller = Controller::<ConfigMap>::new("maps").cluster_concurrency(1);
    world.run(controller.build(reconcile, Arc::new(seen.clone())).unwrap());
    seen.wait_for(10).await;
    a.put_map("ns/now", "1");
    let before = seen.len();
    until_true(|| seen.all().iter().any(|object| object == "now")).await;
    assert!(
        seen.len() <= before + 3,
        "{} reconciles came first",
        seen.len() - before
    );
    world.end().await;
}

/// Faults 27 and 28: an index that is registered again replaces the first one, and needs no watch of its kind.
#[tokio::test(start_paused = true)]
async fn an_index_is_one_however_often_it_is_registered_and_starts_no_watch() {
    let world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    a.put_map("ns/x", "1");
    let calls = Arc::<AtomicUsize>::default();
    for suffix in ["first", "second"] {
        let calls = calls.clone();
        world.fleet.index::<ConfigMap>("value", move |map| {
            calls.fetch_add(1, Ordering::SeqCst);
            let value = map
                .data
                .as_ref()
                .and_then(|data| data.get("value"))
                .cloned()
                .unwrap_or_default();
            vec![format!("{value} {suffix}")]
        });
    }
    let cluster = world.cluster("a").await;
    cluster.wait_for(mcr::ClusterState::is_ready).await;
    assert_eq!((a.lists(), b.lists()), (0, 0));
    let watch = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    let store = cluster.store::<ConfigMap>().unwrap();
    store.wait_synced(Duration::from_secs(10)).await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(store.by_index("value", "1 second").unwrap().len(), 1);
    assert_eq!(store.by_index("value", "1 first").unwrap().len(), 0);
    assert_eq!(b.lists(), 0);
    drop(watch);
    world.end().await;
}

/// Promise 14: a user who sees no objects can see the reason.
#[tokio::test(start_paused = true)]
async fn a_fleet_without_clusters_reports_so_after_ten_seconds() {
    let log = Log::of_this_thread(Level::INFO);
    let empty = World::new();
    let announced = || log.lines_with("has no clusters");
    sleep(9_000).await;
    assert_eq!(announced(), Vec::<String>::new());
    sleep(2_000).await;
    let [line] = &announced()[..] else {
        panic!("{:?}", announced())
    };
    assert!(
        line.ends_with(
            "the fleet has no clusters after 10 s provider=told state=it has not finished looking broken=0"
        ),
        "{line}"
    );
    empty.end().await;
    let world = World::new();
    world.join("a");
    sleep(11_000).await;
    assert_eq!(announced().len(), 1, "not where there are clusters");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn b_18_to_21_a_deployment_and_its_replica_set_are_one_request() {
    let web = "cluster://a/default/web";
    for way in ["owns", "every owner", "watches", "no primary kind"] {
        let (mut world, a) = World::with_a();
        let seen = Seen::default();
        let ctx = Arc::new(seen.clone());
        let primary = || Controller::<Deployment>::new("deployments");
        world.run(match way {
            "owns" => primary().owns::<ReplicaSet>().build(keys, ctx).unwrap(),
            "every owner" => primary()
                .owns_with::<ReplicaSet>(&(), OwnsOptions::new().every_owner())
                .build(keys, ctx)
                .unwrap(),
            "watches" => primary()
                .watches(|set| controller_of(&set))
                .build(keys, ctx)
                .unwrap(),
            _ => Controller::named("deployments")
                .watches(|deployment: Watched<Deployment>| ObjectKey::of(&*deployment.object))
                .watches(|set| controller_of(&set))
                .build(keys, ctx)
                .unwrap(),
        });
        until_true(|| a.watches() == 2).await;
        a.put("deployments", "default/web", json!({}));
        assert_eq!(seen.wait_for(1).await, [web], "{way}");
        a.put("replicasets", "default/web-1", owned("web", true));
        assert_eq!(seen.wait_for(2).await, [web, web], "{way}");
        a.put("replicasets", "default/web-2", owned("web", false));
        sleep(1_000).await;
        assert_eq!(seen.len(), if way == "every owner" { 3 } else { 2 }, "{way}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b_22_a_predicate_of_a_watch_sees_its_kind_only_and_the_filter_of_events_sees_all() {
    let (mut world, a) = World::with_a();
    let (deployments, sets, all) = (
        Seen::<String>::default(),
        Seen::<String>::default(),
        Seen::<String>::default(),
    );
    let note = |seen: &Seen<String>| {
        let seen = seen.clone();
        Predicate::new(move |change| {
            seen.push(change.key().unwrap().to_string());
            true
        })
    };
    let seen = Seen::default();
    let controller = Controller::<Deployment>::new("deployments")
        .predicate(note(&deployments))
        .event_filter(note(&all))
        .owns_with::<ReplicaSet>(
            &(),
            OwnsOptions::new().watch(WatchOptions::new().predicate(note(&sets))),
        );
    world.run(controller.build(keys, Arc::new(seen.clone())).unwrap());
    a.put("deployments", "ns/web", json!({}));
    seen.wait_for(1).await;
    a.put("replicasets", "ns/web-1", owned("web", true));
    seen.wait_for(2).await;
    assert_eq!(deployments.all(), ["ns/web"]);
    assert_eq!(sets.all(), ["ns/web-1"]);
    assert_eq!(all.all(), ["ns/web", "ns/web-1"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn b_23_two_controllers_of_one_kind_share_one_watch_of_its_metadata() {
    type Meta = PartialObjectMeta<Deployment>;
    let (mut world, a) = World::with_a();
    let (one, two) = (Seen::default(), Seen::default());
    for (name, seen) in [("one", &one), ("two", &two)] {
        world.run(
            Controller::<Meta>::new(name)
                .build(keys, Arc::new(seen.clone()))
                .unwrap(),
        );
    }
    a.put("deployments", "ns/web", json!({}));
    assert_eq!(one.wait_for(1).await, two.wait_for(1).await);
    let cluster = world.cluster("a").await;
    assert_eq!((a.lists(), a.watches()), (1, 1));
    assert!(cluster.store::<Meta>().is_ok() && cluster.store::<Deployment>().is_err());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn b_24_primary_owned_and_watched_kinds_by_their_metadata_alone() {
    type Meta<K> = PartialObjectMeta<K>;
    let (mut world, a) = World::with_a();
    let (seen, mapped) = (Seen::default(), Seen::<String>::default());
    let map = {
        let mapped = mapped.clone();
        move |set: Watched<Meta<StatefulSet>>| {
            let (version, kind) = (
                Meta::<StatefulSet>::api_version(&()),
                Meta::<StatefulSet>::kind(&()),
            );
            let (namespace, name) = (set.object.namespace().unwrap_or_default(), set.object.name_any());
            mapped.push(format!(
                "{version} {kind} {namespace}/{name} {:?}",
                set.object.labels()
            ));
            [ObjectKey::namespaced("ns", "mapped")]
        }
    };
    let controller = Controller::<Meta<Deployment>>::new("metadata")
        .owns_with::<ReplicaSet>(&(), OwnsOptions::new().metadata_only())
        .watches(map);
    world.run(controller.build(keys, Arc::new(seen.clone())).unwrap());
    a.put("deployments", "ns/web", json!({"spec": {"replicas": 3}}));
    assert_eq!(seen.wait_for(1).await[0], "cluster://a/ns/web");
    a.put("replicasets", "ns/web-1", owned("web", true));
    assert_eq!(seen.wait_for(2).await[1], "cluster://a/ns/web");
    a.put(
        "statefulsets",
        "ns/db",
        json!({"metadata": {"labels": {"l": "v"}}}),
    );
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/mapped");
    assert_eq!(mapped.all(), [r#"apps/v1 StatefulSet ns/db {"l": "v"}"#]);
    let cluster = world.cluster("a").await;
    assert!(cluster.store::<Deployment>().is_err() && cluster.store::<StatefulSet>().is_err());
    world.end().await;
}

/// A selector function that selects all clusters or none, and records the clusters of its calls.
fn choosing(answer: bool, asked: &Seen<String>) -> ClusterSelector {
    let asked = asked.clone();
    ClusterSelector::matching(move |cluster| {
        asked.push(cluster.name().as_str());
        answer
    })
}

#[tokio::test(start_paused = true)]
async fn b_25_a_function_that_chooses_no_cluster_leaves_the_hub() {
    let mut world = World::new();
    let (hub, zoo) = (world.join("hub"), world.join("zoo"));
    hub.put_map("ns/lion", "1");
    zoo.put_map("ns/tiger", "1");
    let (seen, asked) = (Seen::default(), Seen::default());
    let selector = ClusterSelector::hub().or(choosing(false, &asked));
    let controller = Controller::<ConfigMap>::new("animals").clusters(selector);
    world.run(controller.build(keys, Arc::new(seen.clone())).unwrap());
    assert_eq!(seen.wait_for(1).await, ["cluster://hub/ns/lion"]);
    until_true(|| asked.len() > 0).await;
    sleep(10_000).await;
    assert_eq!(seen.len(), 1);
    assert!(
        asked.all().iter().all(|cluster| cluster == "zoo"),
        "nobody asks about the hub: {:?}",
        asked.all()
    );
    assert_eq!(zoo.lists(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn b_26_a_function_that_chooses_a_cluster_has_it_reconciled() {
    let mut world = World::new();
    let zoo = world.join("zoo");
    zoo.put_map("ns/tiger", "1");
    let (seen, asked) = (Seen::default(), Seen::default());
    let controller = Controller::<ConfigMap>::new("animals").clusters(choosing(true, &asked));
    world.run(controller.build(keys, Arc::new(seen.clone())).unwrap());
    assert_eq!(seen.wait_for(1).await, ["cluster://zoo/ns/tiger"]);
    assert!(asked.len() > 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn s_01_in_a_cluster_that_is_not_chosen_nothing_is_watched_made_or_called() {
    let mut world = World::new();
    let zoo = world.join("zoo");
    zoo.put_map("ns/tiger", "1");
    let (asked, called) = (Seen::default(), Seen::<String>::default());
    let controller = Controller::<ConfigMap>::new("animals")
        .clusters(choosing(false, &asked))
        .watches({
            let called = called.clone();
            move |_: Watched<ReplicaSet>| {
                called.push("mapper");
                Vec::<ObjectKey>::new()
            }
        })
        .cluster_source({
            let called = called.clone();
            move |_, _, _| {
                called.push("source");
                async { Ok(()) }
            }
        })
        .weight_by({
            let called = called.clone();
            move |_| {
                called.push("weight");
                1
            }
        });
    let handle = world.run(controller.build(keys, Arc::default()).unwrap());
    zoo.put("replicasets", "ns/x", json!({}));
    until_true(|| asked.len() > 0).await;
    assert!(
        world
            .cluster("zoo")
            .await
            .wait_for(mcr::ClusterState::is_ready)
            .await
            .is_ready()
    );
    sleep(10_000).await;
    assert_eq!(called.all(), Vec::<String>::new());
    assert_eq!((zoo.lists(), zoo.watches()), (0, 0));
    assert!(!handle.status().clusters.contains_key(&name("zoo")));
    world.end().await;
}
