//! Names that Kubernetes does not allow.

use mcr_sync::NameTemplate;

use crate::world::widgets::*;

#[tokio::test(start_paused = true)]
async fn sync_name_that_is_too_long_or_not_valid_is_reported_once_and_others_are_synced() {
    let long = "x".repeat(253);
    let mut world = World::with(&["well", &long]);
    // Its name makes names that no object may have.
    let scoped = cluster("shop/team");
    make(&scoped, "w", json!({"size": 1}));
    world.begin(sync().name_by(NameTemplate::parse("{cluster}-{name}").unwrap()));
    world.clusters.add(spec(&scoped, "source"));
    is_there(&world.berlin, "team-a-well", 1).await;
    let too_long = "the template makes a name of 260 characters, and 253 are allowed; use {hash} in it";
    world.waits(too_long).await;
    let bad = "the template makes the name \"shop/team-w\", which Kubernetes does not allow";
    world.waits(bad).await;
    world.reported(&long, "InvalidName", too_long).await;
    for source in [get(&world.team_a, &long), get(&scoped, "w")] {
        let finalizers = &source.unwrap()["metadata"]["finalizers"];
        assert!(finalizers.is_null(), "there is nothing to clean up: {finalizers}");
    }
    assert_eq!(count(&world.berlin, "create"), 1);
    // What was never synced holds nobody.
    world.ends(&long).await;
}
