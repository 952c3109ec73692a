//! Credentials without the rights that a sync needs.

use std::time::Duration;

use mcr::FailingRequest;
use mcr_testkit::waiting::eventually;
use serde_json::json;

use crate::world::{LIMIT, WIDGETS, World, allow, allow_resources, is_gone, is_there, sync, widget};

/// Waits until the failure of a request was repeated, with longer and longer pauses.
async fn is_tried_again_later_and_later(world: &World, object: &str) -> FailingRequest {
    let attempts = |least: u32| {
        move || {
            let mut failing = world.failing().into_iter();
            failing.find(|request| request.object == object && request.attempt >= least)
        }
    };
    let mut begun = tokio::time::Instant::now();
    let mut pauses = Vec::new();
    for attempt in [6, 8, 10] {
        eventually(LIMIT, format!("attempt {attempt} of {object}"), attempts(attempt)).await;
        pauses.push(begun.elapsed());
        begun = tokio::time::Instant::now();
    }
    assert!(
        pauses[2] > 2 * pauses[1] && pauses[2] > Duration::from_secs(1),
        "{pauses:?}"
    );
    let failing = attempts(10)().unwrap();
    assert!(failing.retry_at.is_some());
    failing
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_without_the_right_to_patch_gets_no_target_and_holds_no_other() {
    let mut world = World::new();
    allow(&world.team, &["get", "list", "watch"]);
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world
        .other
        .create(widget("default", "well", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    is_there(&world.berlin, "default/well", 1).await;
    let failure = is_tried_again_later_and_later(&world, "default/w").await;
    for words in [
        "could not update cluster://team/default/w: ",
        "User \"sync\" cannot patch resource \"widgets\"",
        ". Grant this verb to the credentials of the cluster; it is tried again",
    ] {
        assert!(failure.error.contains(words), "{failure:?}");
    }
    let requests = world.berlin.audit().count(|event| event.name == "w");
    assert_eq!(
        requests, 0,
        "nothing is asked of the target cluster before the finalizer is written"
    );
    allow(&world.team, &["*"]);
    is_there(&world.berlin, "default/w", 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_source_cluster_without_the_right_to_patch_the_status_gets_its_targets() {
    let mut world = World::new();
    allow_resources(&world.team, &["widgets"]);
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    is_there(&world.berlin, "default/w", 1).await;
    let failure = is_tried_again_later_and_later(&world, "default/w").await;
    for words in [
        "could not update the status of cluster://team/default/w: ",
        "cannot patch resource \"widgets/status\"",
        ". Grant this verb to the credentials of the cluster; it is tried again",
    ] {
        assert!(failure.error.contains(words), "{failure:?}");
    }
    world.edit("w", json!({"size": 2}));
    is_there(&world.berlin, "default/w", 2).await;
    allow(&world.team, &["*"]);
    world.told("w", "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_target_cluster_without_the_right_to_create_is_told_and_others_are_served() {
    let mut world = World::new();
    allow(&world.berlin, &["get", "list", "watch", "patch", "delete"]);
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync().to_each(mcr::ClusterSelector::label("role", "target")));
    is_there(&world.lyon, "default/w", 1).await;
    let failure = is_tried_again_later_and_later(&world, "default/w").await;
    let message = world.told("w", "RequestFailed").await;
    for words in [
        "could not create cluster://berlin/default/w: ",
        "cannot create resource \"widgets\"",
        ". Grant this verb to the credentials of the cluster; it is tried again",
    ] {
        assert!(
            failure.error.contains(words) && message.contains(words),
            "{failure:?} {message}"
        );
    }
    world.edit("w", json!({"size": 2}));
    is_there(&world.lyon, "default/w", 2).await;
    assert!(world.berlin.get(WIDGETS, "default/w").is_none());
    allow(&world.berlin, &["*"]);
    is_there(&world.berlin, "default/w", 2).await;
    world.team.delete(WIDGETS, "default/w").unwrap();
    is_gone(&world.team, "default/w").await;
    world.stop().await;
}
