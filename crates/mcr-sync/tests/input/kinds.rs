//! Kinds that a cluster does not serve yet.

use mcr::ClusterSelector;
use serde_json::json;

use crate::world::{WIDGETS, World, crd, is_there, sync, widget};

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
