//! Targets whose source lost its finalizer by hand, and was deleted while the program was stopped.

use std::time::Duration;

use mcr_testkit::waiting::eventually;
use serde_json::{Value, json};

use crate::{
    gate::Gate,
    world::{LIMIT, WIDGETS, World, is_gone, is_there, sync, widget},
};

#[tokio::test(start_paused = true)]
async fn sync_target_whose_source_is_gone_without_its_finalizer_is_told_and_stays() {
    let mut world = World::new();
    for source in ["lost", "kept"] {
        world
            .team
            .create(widget("default", source, json!({"size": 1})))
            .unwrap();
    }
    world.start(sync());
    for source in ["lost", "kept"] {
        is_there(&world.berlin, &format!("default/{source}"), 1).await;
    }
    world.stop().await;
    let mut source = world.team.get(WIDGETS, "default/lost").unwrap();
    source["metadata"]["finalizers"] = Value::Null;
    world.team.update(source).unwrap();
    world.team.delete(WIDGETS, "default/lost").unwrap();
    assert!(world.team.get(WIDGETS, "default/lost").is_none());

    world.start(sync());
    let words =
        "cluster://berlin/default/lost was made for cluster://team/default/lost, which no longer exists";
    let failure = world.fails_with(words).await;
    assert_eq!(failure.retry_at, None, "{failure:?}");
    world.edit("kept", json!({"size": 2}));
    is_there(&world.berlin, "default/kept", 2).await;
    // An event of the target is no reason to tell it again, or to delete it.
    let mut target = world.berlin.get(WIDGETS, "default/lost").unwrap();
    target["spec"]["size"] = 5.into();
    world.berlin.update(target).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    is_there(&world.berlin, "default/lost", 5).await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
    assert_eq!(world.failing().len(), 1);

    // The words end with the target.
    world.berlin.delete(WIDGETS, "default/lost").unwrap();
    eventually(LIMIT, "no failure", || world.failing().is_empty().then_some(())).await;
    // A source that comes back takes up its target, and nobody takes a usual deletion for a loss.
    world.team.delete(WIDGETS, "default/kept").unwrap();
    is_gone(&world.team, "default/kept").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.failing(), []);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_that_was_replaced_by_an_empty_one_loses_no_target() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    is_there(&world.berlin, "default/w", 1).await;
    world.stop().await;

    world.team = World::new().team;
    world.start(sync());
    world
        .fails_with("was made for cluster://team/default/w, which no longer exists")
        .await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
    // The backup is restored, and the sync goes on with the same target.
    let target = world.berlin.get(WIDGETS, "default/w").unwrap();
    world
        .team
        .create(widget("default", "w", json!({"size": 2})))
        .unwrap();
    let found = is_there(&world.berlin, "default/w", 2).await;
    assert_eq!(found["metadata"]["uid"], target["metadata"]["uid"]);
    world.told("w", "Synced").await;
    assert_eq!(world.failing(), []);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_that_is_gone_before_its_watch_tells_is_no_orphan() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let gate = Gate::default();
    let berlin = gate.before(&world.berlin, "target");
    world.start_with(sync().build().unwrap(), [berlin]);
    is_there(&world.berlin, "default/w", 1).await;
    world.told("w", "Synced").await;
    gate.lag(Duration::from_secs(30));
    // The event of this change comes when source and target are gone, and that of the deletion after it.
    let mut target = world.berlin.get(WIDGETS, "default/w").unwrap();
    target["metadata"]["labels"]["theirs"] = "yes".into();
    world.berlin.update(target).unwrap();
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.team, "default/w").await;
    assert!(world.berlin.get(WIDGETS, "default/w").is_none());
    let asked = || {
        world
            .team
            .audit()
            .count(|event| event.verb == "get" && event.code == 404)
    };
    let before = asked();
    eventually(LIMIT, "the source is asked for", || {
        (asked() > before).then_some(())
    })
    .await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.failing(), []);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_that_vanishes_with_its_finalizer_while_the_program_runs_is_told_and_its_target_stays() {
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    let gate = Gate::default();
    let team = gate.before(&world.team, "source");
    world.start_with(sync().build().unwrap(), [team]);
    world.told("w", "Synced").await;
    // No event tells what happens now, as when the storage of the cluster is replaced by a backup.
    gate.lag(Duration::from_secs(100_000));
    let mut source = world.team.get(WIDGETS, "default/w").unwrap();
    source["metadata"]["finalizers"] = Value::Null;
    world.team.update(source).unwrap();
    world.team.delete(WIDGETS, "default/w").unwrap();
    world.team.compact(world.team.resource_version());
    gate.lag(Duration::ZERO);
    world.team.end_watches();
    world
        .fails_with("was made for cluster://team/default/w, which no longer exists")
        .await;
    assert_eq!(world.berlin.audit().count(|event| event.verb == "delete"), 0);
    is_there(&world.berlin, "default/w", 1).await;
    world.stop().await;
}
