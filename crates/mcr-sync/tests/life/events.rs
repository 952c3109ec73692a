//! Events on the source.

use crate::world::widgets::*;

#[tokio::test(start_paused = true)]
async fn sync_events_tell_what_was_done_and_what_is_wrong() {
    let mut world = World::with(&["w"]);
    make(&world.berlin, "w", json!({"size": 7}));
    world.begin(sync());
    let taken = "Warning NameTaken default/w in cluster berlin belongs to somebody else";
    world.event("w", taken).await;
    delete(&world.berlin, "w");
    world
        .event("w", "Normal TargetCreated created default/w in cluster berlin")
        .await;
    world
        .event("w", "Normal Synced all targets are as they should be")
        .await;
    delete(&world.team_a, "w");
    world
        .event("w", "Normal TargetDeleted deleted default/w in cluster berlin")
        .await;
    world.stop().await;
    assert_eq!(world.events("w").len(), 4, "each of them once");
    assert!(world.berlin.list("events.events.k8s.io", "").is_empty());
}

#[tokio::test(start_paused = true)]
async fn sync_a_target_that_is_given_up_is_told_as_an_event() {
    let world = World::of(&["noted", "late"], sync().abandon_after(secs(60))).await;
    world.clusters.remove("berlin");
    give_up(&world.team_a, "noted");
    for source in ["noted", "late"] {
        delete(&world.team_a, source);
        let words = format!("gave up default/{source} in cluster berlin, which is away");
        world
            .event(source, &format!("Warning TargetAbandoned {words}"))
            .await;
        is_gone(&world.team_a, source).await;
        assert!(get(&world.berlin, source).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn sync_events_that_are_refused_hold_up_nothing() {
    let mut world = World::with(&["w"]);
    allow_each(&world.team_a, &[("widgets", &["*"]), ("widgets/status", &["*"])]);
    world.begin(sync());
    world.synced("w").await;
    let is_refused = |event: &SimAuditEvent| event.resource.starts_with("events") && event.code == 403;
    until("an event that was refused", || {
        world.team_a.audit().count(is_refused) > 0
    })
    .await;
    delete(&world.team_a, "w");
    is_gone(&world.team_a, "w").await;
}
