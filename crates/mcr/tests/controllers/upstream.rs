//! The cases of the tests of multicluster-runtime for its builder and source, as far as no other file here has them.
//! `docs/comparison.md` lists every case; the numbers are those of its table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Seen, World,
    maps::{keys, maps},
    sleep, until_true,
};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    core::v1::ConfigMap,
};
use kube::{Resource, ResourceExt, core::PartialObjectMeta, runtime::reflector::ObjectRef};
use mcr::{
    BoxError, ClusterSelector, Controller, ObjectKey, OwnsOptions, Predicate, Request, WatchOptions,
    WatchRequest, Watched,
};
use mcr_testkit::log::Log;
use serde_json::{Value, json};
use tracing::Level;

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
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        sleep(10).await;
        seen.push(request.name());
        Ok::<_, BoxError>(())
    };
    let controller = Controller::<ConfigMap>::new("maps").cluster_concurrency(1);
    let (_, seen) = world.run_with(controller, reconcile);
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

#[tokio::test(start_paused = true)]
async fn b_18_to_21_a_deployment_and_its_replica_set_are_one_request() {
    let web = "cluster://a/default/web";
    for way in ["owns", "every owner", "watches", "no primary kind"] {
        let (mut world, a) = World::with_a();
        let primary = || Controller::<Deployment>::new("deployments");
        let every = OwnsOptions::new().every_owner();
        let itself = |deployment: Watched<Deployment>| ObjectKey::of(&*deployment.object);
        let (_, seen) = match way {
            "owns" => world.run_with(primary().owns::<ReplicaSet>(), keys),
            "every owner" => world.run_with(primary().owns_with::<ReplicaSet>(&(), every), keys),
            "watches" => world.run_with(primary().watches(|set| controller_of(&set)), keys),
            _ => {
                let named = Controller::named("deployments").watches(itself);
                world.run_with(named.watches(|set| controller_of(&set)), keys)
            }
        };
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
    let [deployments, sets, all] = [(); 3].map(|()| Seen::<String>::default());
    let note = |seen: &Seen<String>| {
        let seen = seen.clone();
        Predicate::new(move |change| {
            seen.push(change.key().unwrap().to_string());
            true
        })
    };
    let of_sets = OwnsOptions::new().watch(WatchOptions::new().predicate(note(&sets)));
    let controller = Controller::<Deployment>::new("deployments")
        .predicate(note(&deployments))
        .event_filter(note(&all))
        .owns_with::<ReplicaSet>(&(), of_sets);
    let (_, seen) = world.run_with(controller, keys);
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
    let [one, two] = ["one", "two"].map(|name| world.run_with(Controller::<Meta>::new(name), keys).1);
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
    let mapped = Seen::<String>::default();
    let map = {
        let mapped = mapped.clone();
        move |set: Watched<Meta<StatefulSet>>| {
            let (object, kind) = (&set.object, Meta::<StatefulSet>::kind(&()));
            mapped.push(format!("{kind} {} {:?}", object.name_any(), object.labels()));
            [ObjectRef::<Deployment>::new("mapped").within("ns")]
        }
    };
    let controller = Controller::<Meta<Deployment>>::new("metadata")
        .owns_with::<ReplicaSet>(&(), OwnsOptions::new().metadata_only())
        .watches(map);
    let (_, seen) = world.run_with(controller, keys);
    a.put("deployments", "ns/web", json!({"spec": {"replicas": 3}}));
    assert_eq!(seen.wait_for(1).await[0], "cluster://a/ns/web");
    a.put("replicasets", "ns/web-1", owned("web", true));
    assert_eq!(seen.wait_for(2).await[1], "cluster://a/ns/web");
    let labelled = json!({"metadata": {"labels": {"l": "v"}}});
    a.put("statefulsets", "ns/db", labelled);
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/mapped");
    assert_eq!(mapped.all(), [r#"StatefulSet db {"l": "v"}"#]);
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
async fn b_25_and_26_a_function_that_chooses_a_cluster_has_it_reconciled_and_another_leaves_the_hub() {
    for chooses in [false, true] {
        let mut world = World::new();
        let (hub, zoo) = (world.join("hub"), world.join("zoo"));
        hub.put_map("ns/lion", "1");
        zoo.put_map("ns/tiger", "1");
        let asked = Seen::default();
        let selector = ClusterSelector::hub().or(choosing(chooses, &asked));
        let (_, seen) = world.run_with(maps().clusters(selector), keys);
        sleep(10_000).await;
        let all = ["cluster://hub/ns/lion", "cluster://zoo/ns/tiger"];
        let expected = if chooses { &all[..] } else { &all[..1] };
        assert_eq!(seen.sorted(1).await, expected);
        let asked = asked.all();
        assert!(
            !asked.is_empty() && asked.iter().all(|cluster| cluster == "zoo"),
            "{asked:?}"
        );
        assert_eq!(zoo.lists(), u64::from(chooses));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s_01_in_a_cluster_that_is_not_chosen_nothing_is_watched_made_or_called() {
    let mut world = World::new();
    let zoo = world.join("zoo");
    zoo.put_map("ns/tiger", "1");
    let (asked, called) = (Seen::default(), Seen::<String>::default());
    let [of_mapper, of_source, of_weight] = [(); 3].map(|()| called.clone());
    let controller = maps()
        .clusters(choosing(false, &asked))
        .watches(move |_: Watched<ReplicaSet>| {
            of_mapper.push("mapper");
            Vec::<ObjectKey>::new()
        })
        .cluster_source(move |_, _, _| {
            of_source.push("source");
            async { Ok(()) }
        })
        .weight_by(move |_| {
            of_weight.push("weight");
            1
        });
    let handle = world.run(controller.build(keys, Arc::default()).unwrap());
    zoo.put("replicasets", "ns/x", json!({}));
    until_true(|| asked.len() > 0).await;
    let cluster = world.cluster("zoo").await;
    assert!(cluster.wait_for(mcr::ClusterState::is_ready).await.is_ready());
    sleep(10_000).await;
    assert_eq!(called.all(), Vec::<String>::new());
    assert_eq!((zoo.lists(), zoo.watches()), (0, 0));
    assert!(!handle.status().clusters.contains_key("zoo"));
    world.end().await;
}
