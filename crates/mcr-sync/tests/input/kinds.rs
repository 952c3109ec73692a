//! Related kinds that a cluster does not serve, or whose objects it does not list.

use kube::core::{ApiResource, GroupVersionKind};
use mcr_sync::Related;

use crate::world::widgets::*;

const GADGETS: &str = "gadgets.example.com";

/// A sync with Gadgets that go up to the source.
fn with_gadgets() -> Widgets {
    let gadgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
    let up = Related::<_, _, DynamicObject>::up_with("gadgets", &gadgets);
    sync().related(up.named(|_: &DynamicObject, _| Some("g")))
}

/// Makes a cluster serve Gadgets.
fn serve_gadgets(cluster: &SimCluster) {
    let mut kind = crd();
    kind["metadata"]["name"] = GADGETS.into();
    kind["spec"]["names"] = json!({"kind": "Gadget", "plural": "gadgets"});
    cluster.create(kind).unwrap();
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_that_does_not_serve_a_related_kind_has_no_copies_and_releases_its_sources() {
    let mut world = World::with(&["w"]);
    serve_gadgets(&world.berlin);
    world.begin(with_gadgets());
    is_there(&world.berlin, "w", 1).await;
    sleep(secs(60)).await;
    world.ends("w").await;
    assert!(get(&world.berlin, "w").is_none());
}

#[tokio::test(start_paused = true)]
async fn sync_source_is_not_released_before_its_related_copies_were_listed() {
    let mut world = World::with(&["w"]);
    serve_gadgets(&world.team_a);
    serve_gadgets(&world.berlin);
    let meta = json!({"name": "g", "namespace": "default"});
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": meta});
    world.berlin.create(gadget).unwrap();
    world.begin(with_gadgets());
    world.synced("w").await;
    let copies = |world: &World| world.team_a.list(GADGETS, "default").len();
    assert_eq!(copies(&world), 1);
    world.stop().await;
    // A program that starts now can't list the copies, and knows of none.
    let all = ["widgets", "widgets/status", "events"].map(|resource| (resource, &["*"][..]));
    let rules: Vec<_> = all
        .into_iter()
        .chain([("gadgets", &["get", "delete"][..])])
        .collect();
    allow_each(&world.team_a, &rules);
    give_up(&world.team_a, "w");
    delete(&world.team_a, "w");
    world.begin(with_gadgets());
    sleep(secs(300)).await;
    assert!(get(&world.team_a, "w").is_some(), "copies are left");
    allow(&world.team_a, &["*"]);
    is_gone(&world.team_a, "w").await;
    assert_eq!(copies(&world), 0);
}
