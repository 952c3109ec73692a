//! The selection of clusters, the filtering of changes, and the mapping to requests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    ApiAccess, Seen, Unshown, World,
    maps::{keys, maps, record},
    name, sleep, until_true,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::{
    ResourceExt,
    api::ListParams,
    core::{Expression, PartialObjectMeta},
};
use mcr::{
    BoxError, Cluster, ClusterEnqueue, ClusterSelector, Controller, Fleet, FleetEvent, ObjectChange,
    ObjectKey, OwnsOptions, Predicate, Request, RequestKey, RequestObject, WatchOptions, WatchRequest,
    Watched,
    core::{Change, ChangeSink},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

fn owner(kind: &str, name: &str, controller: bool) -> serde_json::Value {
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": kind, "name": name, "uid": "0", "controller": controller}
    ]}})
}

#[tokio::test(start_paused = true)]
async fn owners_are_reconciled_and_former_owners_too() {
    let (mut world, a) = World::with_a();
    let controller = Controller::<ConfigMap>::new("owners").owns::<Secret>();
    let (_, seen) = world.run_with(controller, keys);
    a.put("secrets", "ns/s", owner("ConfigMap", "one", true));
    assert_eq!(seen.wait_for(1).await, ["cluster://a/ns/one"]);
    a.put("secrets", "ns/s", owner("ConfigMap", "two", true));
    let mut both = seen.wait_for(3).await.split_off(1);
    both.sort();
    assert_eq!(both, ["cluster://a/ns/one", "cluster://a/ns/two"]);
    // Objects that are owned but not controlled, or controlled by another kind or group, lead to no request.
    a.put("secrets", "ns/t", owner("ConfigMap", "three", false));
    a.put("secrets", "ns/u", owner("Pod", "four", true));
    let mut of_group = owner("ConfigMap", "five", true);
    of_group["metadata"]["ownerReferences"][0]["apiVersion"] = json!("example.com/v1");
    a.put("secrets", "ns/v", of_group);
    a.delete("secrets", "ns/s");
    assert_eq!(seen.wait_for(4).await[3], "cluster://a/ns/two");
    sleep(5_000).await;
    assert_eq!(seen.len(), 4);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_owner_metadata_only_and_cluster_scoped() {
    let (mut world, a) = World::with_a();
    let options = OwnsOptions::new().every_owner().metadata_only();
    let controller = Controller::<Node>::new("nodes").owns_with::<Secret>(&(), options);
    let (_, seen) = world.run_with(controller, keys);
    a.put("secrets", "ns/s", owner("Node", "n1", false));
    assert_eq!(seen.wait_for(1).await, ["cluster://a/n1"]);
    let cluster = world.cluster("a").await;
    assert!(cluster.store::<PartialObjectMeta<Secret>>().unwrap().is_synced());
    assert!(cluster.store::<Secret>().is_err());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_object_is_reconciled_for_what_happens_in_any_cluster() {
    let (mut world, a) = World::with_a();
    // The change comes before the hub joins, so the request is kept for the hub.
    a.put("nodes", "n1", json!({}));
    let to_hub = |node: Watched<Node>| {
        let object = node.object.metadata.name.clone().unwrap_or_default();
        let key = ObjectKey::namespaced(node.cluster.name().as_str(), object);
        [RequestKey::new(name("hub"), key)]
    };
    let members = WatchOptions::new().clusters(!ClusterSelector::hub());
    let controller = Controller::<ConfigMap>::new("inventory")
        .clusters(ClusterSelector::hub())
        .watches_with(&(), to_hub, members);
    let (handle, seen) = world.run_with(controller, keys);
    let is_open = || {
        handle
            .status()
            .clusters
            .get("a")
            .is_some_and(|a| a.gate.is_open())
    };
    until_true(is_open).await;
    sleep(1_000).await;
    let hub = world.join("hub");
    assert_eq!(seen.wait_for(1).await, ["cluster://hub/a/n1"]);
    a.put("nodes", "n1", json!({"spec": {}}));
    a.put("nodes", "n2", json!({}));
    let mut two = seen.wait_for(3).await.split_off(1);
    two.sort();
    assert_eq!(two, ["cluster://hub/a/n1", "cluster://hub/a/n2"]);
    assert_eq!((a.watches(), hub.watches()), (1, 1));
    assert_eq!(handle.status().counts.misdirected, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_api_of_a_request_is_in_its_cluster_and_its_namespace() {
    let mut world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    a.put("secrets", "ns/of-a", json!({}));
    a.put("secrets", "other/elsewhere", json!({}));
    b.put("secrets", "ns/of-b", json!({}));
    b.put("secrets", "default/by-default", json!({}));
    let secrets = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        for secret in request.api::<Secret>().list(&ListParams::default()).await? {
            seen.push(format!("{} {}", request.key, secret.name_any()));
        }
        Ok::<_, BoxError>(())
    };
    // A key that lacks its namespace.
    let bare = |event: &FleetEvent, _: &mcr::Fleet| match event {
        FleetEvent::Engaged(cluster) if *cluster.name() == "b" => {
            Some(RequestKey::new(name("b"), ObjectKey::cluster_scoped("bare")))
        }
        _ => None,
    };
    let controller = Controller::<ConfigMap>::new("x").watches_fleet(bare);
    let (_, seen) = world.run_with(controller, secrets);
    a.put_map("ns/one", "1");
    b.put_map("ns/one", "1");
    let expected = [
        "cluster://a/ns/one of-a",
        "cluster://b/bare by-default",
        "cluster://b/ns/one of-b",
    ];
    assert_eq!(seen.sorted(3).await, expected);
    world.end().await;
}

/// The first object of the hub is mapped before the cluster has joined, and the second one after it. The store of the hub is
/// not listed in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_joins_during_the_first_list_of_the_hub_misses_no_object() {
    let mut world = World::new();
    let hub = world.join("hub");
    hub.put("secrets", "ns/first", json!({}));
    hub.put("secrets", "ns/second", json!({}));
    let (mapping, mapped) = tokio::sync::oneshot::channel();
    let (joined, has_joined) = std::sync::mpsc::channel();
    let once = Mutex::new(Some((mapping, has_joined)));
    let to_members = move |secret: Watched<Secret>| -> Vec<RequestKey> {
        let mut clusters = secret.fleet.clusters();
        clusters.retain(|cluster| *cluster.name() != "hub");
        let requests = clusters
            .iter()
            .filter_map(|member| RequestKey::of(member, &*secret.object));
        let requests = requests.collect();
        if let Some((mapping, has_joined)) = once.lock().unwrap().take() {
            mapping.send(()).unwrap();
            has_joined.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        requests
    };
    let to_joined = move |event: &FleetEvent, fleet: &Fleet| -> Vec<RequestKey> {
        let member = match event {
            FleetEvent::Engaged(cluster) if *cluster.name() != "hub" => cluster.name(),
            _ => return Vec::new(),
        };
        let secrets = fleet.get("hub").unwrap().store::<Secret>().unwrap();
        let keys = secrets.keys_unsynced().unwrap();
        assert!(!secrets.is_synced());
        joined.send(()).unwrap();
        let request = |key| RequestKey::new(member.clone(), key);
        keys.into_iter().map(request).collect()
    };
    let of_hub = WatchOptions::new().clusters(ClusterSelector::hub());
    let controller = Controller::named("copies")
        .clusters(!ClusterSelector::hub())
        .watches_with(&(), to_members, of_hub)
        .watches_fleet(to_joined);
    let (_, seen) = world.run_with(controller, keys);
    mapped.await.unwrap();
    world.join("a");
    assert_eq!(
        seen.sorted(2).await,
        ["cluster://a/ns/first", "cluster://a/ns/second"]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn requests_for_clusters_that_are_not_selected_are_dropped_and_counted() {
    let (mut world, a) = World::with_a();
    world.join("b");
    world.cluster("b").await;
    let to_b = |map: Watched<Secret>| ObjectKey::of(&*map.object).map(|key| RequestKey::new(name("b"), key));
    let controller = Controller::<ConfigMap>::new("x")
        .clusters(ClusterSelector::name("a"))
        .watches(to_b);
    let (handle, seen) = world.run_with(controller, keys);
    a.put("secrets", "ns/s", json!({}));
    until_true(|| handle.status().counts.misdirected == 1).await;
    assert_eq!(seen.len(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn joins_changes_and_leaves_become_requests_without_a_primary_kind() {
    let mut world = World::new();
    let controller = Controller::named("inventory").watches_fleet(|event, fleet| {
        let of = |kind: &str, cluster: &str| {
            let key = ObjectKey::cluster_scoped(format!("{kind}-{cluster}-of-{}", fleet.clusters().len()));
            vec![RequestKey::new(name("a"), key)]
        };
        match event {
            FleetEvent::Engaged(cluster) => of("joined", cluster.name()),
            FleetEvent::Disengaged { name, .. } => of("left", name),
            _ => vec![],
        }
    });
    let reconcile = |request: Request<()>, seen: Arc<Seen<String>>| async move {
        assert!(matches!(request.object, RequestObject::Unwatched));
        seen.push(request.name());
        Ok::<_, BoxError>(())
    };
    let (_, seen) = world.run_with(controller, reconcile);
    world.join("a");
    assert_eq!(seen.wait_for(1).await, ["joined-a-of-1"]);
    world.join("b");
    assert_eq!(seen.wait_for(2).await[1], "joined-b-of-2");
    world.remove("b");
    assert_eq!(seen.wait_for(3).await[2], "left-b-of-1");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_are_taken_in_and_released_as_their_labels_change() {
    for by_property in [false, true] {
        let mut world = World::new();
        let a = ApiAccess::default();
        a.put_map("ns/x", "1");
        let announce = |world: &World, env: &str| {
            let spec = a.spec("a");
            let spec = if by_property {
                spec.property("env", env)
            } else {
                spec.label("env", env)
            };
            world.announce(Change::Upsert(spec));
        };
        announce(&world, "dev");
        let selector = if by_property {
            ClusterSelector::property("env", "prod")
        } else {
            ClusterSelector::label("env", "prod")
        };
        let (handle, seen) = world.run_with(maps().clusters(selector), keys);
        sleep(3_000).await;
        assert_eq!((seen.len(), a.watches()), (0, 0));
        announce(&world, "prod");
        seen.wait_for(1).await;
        assert_eq!(a.watches(), 1);
        announce(&world, "dev");
        until_true(|| handle.status().clusters.is_empty() && a.watches() == 0).await;
        a.put_map("ns/x", "2");
        sleep(3_000).await;
        assert_eq!(seen.len(), 1);
        assert!(world.cluster("a").await.state().is_ready());
        announce(&world, "prod");
        seen.wait_for(2).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_are_chosen_by_name_provider_labels_and_properties() {
    type S = ClusterSelector;
    let world = World::new();
    world.join("hub");
    let a = ApiAccess::default();
    let spec = a.spec("a").label("env", "prod").label("region", "eu");
    let spec = spec
        .property("context", "a")
        .property("clusterset.k8s.io", "shop");
    world.announce(Change::Upsert(spec));
    let a = world.cluster("a").await;
    for (selector, expected) in [
        (S::default(), true),
        (S::all(), true),
        (S::name("a"), true),
        (S::name("b"), false),
        (S::names(["b", "a"]), true),
        (S::provider("told"), true),
        (S::provider("kind"), false),
        (S::matching(|cluster| cluster.provider() == "told"), true),
        (S::label("env", "prod"), true),
        (S::label("env", "dev"), false),
        (S::label("zone", ""), false),
        (S::label_in("region", ["us", "eu"]), true),
        (S::label_in("region", ["us"]), false),
        (S::has_label("region"), true),
        (!S::has_label("region"), false),
        (S::labels(Expression::NotEqual("env".into(), "dev".into())), true),
        (S::labels(Expression::DoesNotExist("env".into())), false),
        (S::property("context", "a"), true),
        (S::property("context", "b"), false),
        (S::property("env", "prod"), false),
        (S::label("context", "a"), false),
        (S::cluster_set("shop"), true),
        (S::cluster_set("other"), false),
        (S::name("a").and(S::label("env", "dev")), false),
        (S::name("b").or(S::label("env", "prod")), true),
    ] {
        assert_eq!(selector.matches(&a), expected, "{selector}");
    }
    let hub = world.cluster("hub").await;
    let selected = [S::default(), S::all(), S::hub()].map(|selector| selector.matches(&hub));
    assert_eq!(selected, [false, true, true]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_watch_chooses_its_clusters() {
    let mut world = World::new();
    let a = ApiAccess::default();
    world.add("a", &a, &[]);
    a.put("secrets", "ns/s", json!({}));
    let same = |secret: Watched<Secret>| ObjectKey::of(&*secret.object);
    let of_secrets = WatchOptions::new().clusters(ClusterSelector::label("secrets", "yes"));
    let controller = maps()
        .clusters(ClusterSelector::label("maps", "yes"))
        .watches_with(&(), same, of_secrets);
    let (handle, seen) = world.run_with(controller, record);
    world.add("a", &a, &[("secrets", "yes")]);
    assert_eq!(seen.wait_for(1).await, ["cluster://a/ns/s unwatched"]);
    let lists = a.lists();
    // A watch that starts or ends does not restart the other watch.
    world.add("a", &a, &[("secrets", "yes"), ("maps", "yes")]);
    until_true(|| a.watches() == 2).await;
    a.put("secrets", "ns/s", json!({"data": {}}));
    assert_eq!(seen.wait_for(2).await[1], "cluster://a/ns/s absent");
    a.put_map("ns/s", "1");
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/s live 1");
    world.add("a", &a, &[("secrets", "yes")]);
    until_true(|| a.watches() == 1).await;
    // The Secret is delivered again.
    assert_eq!(seen.wait_for(4).await[3], "cluster://a/ns/s unwatched");
    assert_eq!(a.lists(), lists + 1);
    assert!(handle.status().clusters["a"].gate.is_open());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_released_no_longer_holds_anything_back() {
    let mut world = World::new();
    let a = ApiAccess::default();
    a.forbid("secrets");
    a.put_map("ns/x", "1");
    world.add("a", &a, &[("secrets", "yes")]);
    let where_wanted = WatchOptions::new().clusters(ClusterSelector::has_label("secrets"));
    let options = OwnsOptions::new().watch(where_wanted);
    let (_, seen) = world.run_with(maps().owns_with::<Secret>(&(), options), keys);
    sleep(5_000).await;
    assert_eq!(seen.len(), 0);
    world.add("a", &a, &[]);
    seen.wait_for(1).await;
    world.end().await;
}

/// Collects the changes of a watch, to try predicates on.
#[derive(Default)]
struct Changes(Mutex<Vec<ObjectChange>>);

impl ChangeSink for Changes {
    fn changed(&self, change: &ObjectChange) {
        self.0.lock().unwrap().push(change.clone());
    }
}

/// The changes that a watch of ConfigMaps delivers while `script` writes to the server.
async fn changes_of(count: usize, script: impl FnOnce(&ApiAccess)) -> Vec<ObjectChange> {
    let world = World::new();
    let a = world.join("a");
    let changes = Arc::new(Changes::default());
    let cluster = world.cluster("a").await;
    let watch = cluster
        .watch(WatchRequest::of::<ConfigMap>(), Some(changes.clone()))
        .unwrap();
    until_true(|| a.watches() == 1).await;
    script(&a);
    until_true(|| changes.0.lock().unwrap().len() == count).await;
    drop(watch);
    world.end().await;
    std::mem::take(&mut *changes.0.lock().unwrap())
}

/// For each change, whether it passes.
fn passed(changes: &[ObjectChange], predicate: Predicate) -> String {
    let passes = |change| if predicate.passes(change) { '1' } else { '0' };
    changes.iter().map(passes).collect()
}

#[tokio::test(start_paused = true)]
async fn predicates_keep_back_updates_only() {
    let object = |generation: u64, label: &str, annotation: &str| json!({"metadata": {"generation": generation, "labels": {"l": label}, "annotations": {"a": annotation}}});
    let changes = changes_of(8, |a| {
        a.put("configmaps", "ns/x", object(1, "1", "1")); // create
        a.put("configmaps", "ns/x", object(1, "1", "1")); // only the resource version changes
        a.put("configmaps", "ns/x", object(2, "1", "1"));
        a.put("configmaps", "ns/x", object(2, "2", "1"));
        a.put("configmaps", "ns/x", object(2, "2", "2"));
        a.delete("configmaps", "ns/x");
        a.put_map("ns/no-generation", "1");
        a.put_map("ns/no-generation", "2");
    })
    .await;
    let of = |predicate| passed(&changes, predicate);
    type P = Predicate;
    assert_eq!(of(P::generation_changed()), "10100111");
    assert_eq!(of(P::spec_changed()), "10100111");
    assert_eq!(of(P::labels_changed()), "10010110");
    assert_eq!(of(P::annotations_changed()), "10001110");
    assert_eq!(of(P::resource_version_changed()), "11111111");
    assert_eq!(of(P::labels_changed().or(P::annotations_changed())), "10011110");
    assert_eq!(of(P::labels_changed().and(P::annotations_changed())), "10000110");
    assert_eq!(of(!P::labels_changed()), "01101001");
    let data = P::of::<ConfigMap>(|old, new| old.is_some_and(|o| new.is_some_and(|n| o.data != n.data)));
    assert_eq!(of(data), "00000001");
}

#[tokio::test(start_paused = true)]
async fn spec_changed_passes_a_new_generation_finalizers_and_the_mark_of_a_deletion() {
    let deleted = json!("2026-01-01T00:00:00Z");
    #[rustfmt::skip]
    let states = [
        (json!({"generation": 1}), '1'), // create
        (json!({"generation": 1, "finalizers": ["a"]}), '1'),
        (json!({"generation": 1, "finalizers": ["a"], "labels": {"l": "1"}}), '0'),
        (json!({"generation": 1, "finalizers": ["a"], "annotations": {"a": "1"}}), '0'),
        (json!({"generation": 1, "finalizers": ["b"]}), '1'),
        (json!({"generation": 1, "finalizers": ["b", "a"]}), '1'),
        (json!({"generation": 2, "finalizers": ["b", "a"]}), '1'),
        (json!({"generation": 2, "finalizers": ["b", "a"], "deletionTimestamp": deleted}), '1'),
        (json!({"generation": 2, "finalizers": ["b", "a"], "deletionTimestamp": deleted, "labels": {}}), '0'),
        (json!({"generation": 2, "finalizers": ["b"], "deletionTimestamp": deleted}), '1'),
        (json!({"generation": 2, "finalizers": 7, "deletionTimestamp": deleted}), '1'), // can't be read
        (json!({"finalizers": ["a"]}), '1'), // without a generation
        (json!({"finalizers": ["a"]}), '1'),
        (json!({"generation": 1, "finalizers": ["a"]}), '1'),
    ];
    // The status of each is new too, and does not count.
    let changes = changes_of(states.len(), |a| {
        for (at, (metadata, _)) in states.iter().enumerate() {
            let object = json!({"metadata": metadata, "status": {"at": at}});
            a.put("configmaps", "ns/x", object);
        }
    })
    .await;
    let expected: String = states.iter().map(|(_, passes)| passes).collect();
    assert_eq!(passed(&changes, Predicate::spec_changed()), expected);
    let by_generation = passed(&changes, Predicate::generation_changed());
    assert_eq!(by_generation, "10000010000111");
}

#[tokio::test(start_paused = true)]
async fn panics_of_the_functions_given_are_counted_and_disturb_nobody() {
    let (mut world, a) = World::with_map();
    a.put("secrets", "ns/s", json!({}));
    let controller = Controller::<ConfigMap>::new("x")
        .predicate(Predicate::new(|_| panic!("predicate")))
        .watches(|_: Watched<Secret>| -> Vec<ObjectKey> { panic!("mapper") })
        .watches_fleet(|_, _| -> Vec<RequestKey> { panic!("fleet mapper") })
        .weight_by(|_| panic!("weight"));
    let (handle, seen) = world.run_with(controller, keys);
    seen.wait_for(1).await;
    assert!(handle.status().counts.callback_panics >= 4);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn sources_per_cluster_live_as_long_as_it_and_failed_ones_start_again() {
    let mut world = World::new();
    world.join("a");
    let runs: Seen<String> = Seen::default();
    let source = {
        let runs = runs.clone();
        move |cluster: Cluster, enqueue: ClusterEnqueue, stop: CancellationToken| {
            let runs = runs.clone();
            async move {
                runs.push("begun");
                match runs.len() {
                    1 => return Err("first".into()),
                    2 => panic!("second"),
                    3 => return Err(Unshown.into()),
                    _ => {}
                }
                assert!(enqueue.add(ObjectKey::cluster_scoped("from-source")));
                assert!(enqueue.add_after(ObjectKey::cluster_scoped("later"), Duration::from_secs(1)));
                stop.cancelled().await;
                assert!(!enqueue.add(ObjectKey::cluster_scoped("too-late")));
                runs.push(cluster.name().as_str());
                Ok(())
            }
        }
    };
    let controller = Controller::named("sources").cluster_source(source);
    let (_, seen) = world.run_with(controller, keys);
    assert_eq!(
        seen.wait_for(2).await,
        ["cluster://a/from-source", "cluster://a/later"]
    );
    world.remove("a");
    assert_eq!(runs.wait_for(5).await[4], "a");
    world.end().await;
    assert_eq!(seen.len(), 2);
}
