//! Kinds that a cluster does not serve yet.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::ClusterSelector;
use mcr_sync::Related;
use mcr_testkit::sim::{SimCluster, SimRule, SimUser};
use serde_json::{Value, json};

use crate::world::{WIDGETS, Widgets, World, allow, crd, is_gone, is_there, sync, widget};

#[tokio::test(start_paused = true)]
async fn sync_kind_that_a_target_cluster_does_not_serve_is_told_and_synced_when_it_does() {
    let mut world = World::without_kind();
    for cluster in [&world.team, &world.other, &world.lyon] {
        cluster.create(crd()).unwrap();
    }
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync().to_each(ClusterSelector::label("role", "target")));
    is_there(&world.lyon, "default/w", 1).await;
    let message = world.told("w", "NotListed").await;
    assert_eq!(
        message,
        "the state of default/w in cluster berlin is not known, because its kind can't be listed there: the API server does not serve \
         this kind (404). Install its CRD, or check group, version and plural"
    );
    assert!(world.team.get(WIDGETS, "default/w").unwrap()["metadata"]["finalizers"][0].is_string());
    // The other cluster is served meanwhile.
    world.edit("w", json!({"size": 2}));
    is_there(&world.lyon, "default/w", 2).await;
    world.berlin.create(crd()).unwrap();
    is_there(&world.berlin, "default/w", 2).await;
    world.told("w", "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_kind_that_a_source_cluster_does_not_serve_holds_no_other_cluster() {
    let mut world = World::without_kind();
    for cluster in [&world.team, &world.berlin, &world.lyon] {
        cluster.create(crd()).unwrap();
    }
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    is_there(&world.berlin, "default/w", 1).await;
    world.other.create(crd()).unwrap();
    world
        .other
        .create(widget("default", "late", json!({"size": 3})))
        .unwrap();
    is_there(&world.berlin, "default/late", 3).await;
    world.stop().await;
}

/// A sync with Gadgets that go up to the source.
fn with_gadgets() -> (Widgets, Value) {
    let gadgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
    let mut kind = crd();
    kind["metadata"]["name"] = GADGETS.into();
    kind["spec"]["names"] = json!({"kind": "Gadget", "plural": "gadgets"});
    let up = Related::<_, _, DynamicObject>::up_with("gadgets", &gadgets);
    (sync().related(up.named(|_: &DynamicObject, _| Some("g"))), kind)
}

const GADGETS: &str = "gadgets.example.com";

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_that_does_not_serve_a_related_kind_has_no_copies_and_releases_its_sources() {
    let mut world = World::new();
    let (sync, kind) = with_gadgets();
    world.berlin.create(kind).unwrap();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync);
    is_there(&world.berlin, "default/w", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.team, "default/w").await;
    assert!(world.berlin.get(WIDGETS, "default/w").is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_is_not_released_before_its_related_copies_were_listed() {
    let mut world = World::new();
    let (sync, kind) = with_gadgets();
    for cluster in [&world.team, &world.berlin] {
        cluster.create(kind.clone()).unwrap();
    }
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g", "namespace": "default"}});
    world.berlin.create(gadget).unwrap();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync);
    world.told("w", "Synced").await;
    let copies = |cluster: &SimCluster| cluster.list(GADGETS, "default").len();
    assert_eq!(copies(&world.team), 1);
    world.stop().await;
    // A program that starts now can't list the copies, and knows of none.
    let rule = |resource, verbs: &[&str]| SimRule::new(["*"], [resource], verbs.iter().copied());
    let all = ["widgets", "widgets/status", "events"].map(|resource| rule(resource, &["*"]));
    let user = all.into_iter().fold(SimUser::new("sync"), SimUser::rule);
    world
        .team
        .set_user("sync", user.rule(rule("gadgets", &["get", "delete"])));
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    source["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    world.team.update(source).unwrap();
    world.team.delete(WIDGETS, "default/w").unwrap();
    let (sync, _) = with_gadgets();
    world.start(sync);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(
        world.team.get(WIDGETS, "default/w").is_some(),
        "{} copies are left",
        copies(&world.team)
    );
    allow(&world.team, &["*"]);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(world.team.get(WIDGETS, "default/w").is_none());
    assert_eq!(copies(&world.team), 0);
    world.stop().await;
}
