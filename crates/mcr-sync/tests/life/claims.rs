//! Names that are taken, and objects that name a source without being its target.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcr_testkit::waiting::eventually;
use serde_json::json;

use crate::world::*;

#[tokio::test]
async fn sync_adoption_follows_only_a_creation_that_the_server_refused() {
    let mut world = World::new();
    let place = key("team-a", "db");
    let taken = place.trim_start_matches("default/");
    world
        .berlin
        .create(map(taken, json!({"size": "theirs"})))
        .unwrap();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.team_a.create(map("free", json!({"size": "1"}))).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    world.start(to_berlin().adopt(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    }));
    data(&world.berlin, &world.team_a, "db", json!({"size": "1"})).await;
    data(&world.berlin, &world.team_a, "free", json!({"size": "1"})).await;
    world.stop().await;
    let audit = world.berlin.audit();
    let position = |verb: &str, code: u16, name: &str| {
        let mut events = audit.events();
        // The audit log has no name for a creation.
        events.position(|event| {
            event.verb == verb && event.code == code && event.resource == "configmaps" && event.name == name
        })
    };
    let (refused, read) = (position("create", 409, ""), position("get", 200, taken));
    assert!(refused.is_some() && refused < read, "{refused:?} {read:?}");
    assert!(read < position("patch", 200, taken));
    assert!(asked.load(Ordering::Relaxed) > 0);
    // A name that is free costs one request.
    let free = key("team-a", "free");
    assert_eq!(position("get", 404, free.trim_start_matches("default/")), None);
}

#[tokio::test(start_paused = true)]
async fn sync_name_that_is_taken_by_another_object_is_used_once_it_is_free() {
    let mut world = World::new();
    for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    let (kind, place) = ("widgets.example.com", key("team-a", "w"));
    let mut taken = widget(json!({"size": 7}));
    taken["metadata"]["name"] = place.trim_start_matches("default/").into();
    world.berlin.create(taken).unwrap();
    world.team_a.create(widget(json!({"size": 1}))).unwrap();
    world.start(widget_sync());
    let held = || synced(&world).filter(|condition| condition["reason"] == "NameTaken");
    eventually(LIMIT, "the name is taken", held).await;
    // Watches of targets leave out objects without the labels of the sync, so nothing announces this.
    world.berlin.delete(kind, &place).unwrap();
    let made = || {
        world
            .berlin
            .get(kind, &place)
            .filter(|target| target["spec"]["size"] == 1)
    };
    eventually(Duration::from_secs(3600), "the target", made).await;
    world.stop().await;
}

#[tokio::test]
async fn sync_an_object_that_names_a_source_and_is_not_its_target_is_told_and_not_touched() {
    let mut world = World::new();
    for cluster in [&world.team_a, &world.team_b, &world.berlin, &world.lyon] {
        cluster.create(widget_crd(json!({"status": {}}))).unwrap();
    }
    world.team_a.create(widget(json!({"size": 1}))).unwrap();
    world.start(widget_sync());
    let kind = "widgets.example.com";
    async fn told(world: &World, status: &str) -> serde_json::Value {
        let found = || synced(world).filter(|condition| condition["status"] == status);
        eventually(LIMIT, format!("the condition {status}"), found).await
    }
    told(&world, "True").await;
    // Somebody copies the target under another name, and another one keeps it in a backup of another cluster.
    let made = world.berlin.get(kind, &key("team-a", "w")).unwrap();
    let mut copy = made.clone();
    copy["metadata"] = json!({"name": "copy", "namespace": "default",
        "labels": made["metadata"]["labels"], "annotations": made["metadata"]["annotations"]});
    world.berlin.create(copy.clone()).unwrap();
    let condition = told(&world, "False").await;
    assert_eq!(condition["reason"], "ClaimedTwice");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("default/copy in cluster berlin names this source too"),
        "{message}"
    );
    let kept = world.berlin.get(kind, "default/copy").unwrap();
    // The target is still kept as it should be.
    let mut drift = world.berlin.get(kind, &key("team-a", "w")).unwrap();
    drift["spec"]["size"] = 7.into();
    world.berlin.update(drift).unwrap();
    let mended = || {
        world
            .berlin
            .get(kind, &key("team-a", "w"))
            .filter(|target| target["spec"]["size"] == 1)
    };
    eventually(LIMIT, "the target without drift", mended).await;
    world.stop().await;

    // A restart tells it again, and a deletion of the source does not reach the copy.
    world.start(widget_sync());
    told(&world, "False").await;
    assert_eq!(world.berlin.get(kind, "default/copy"), Some(kept));
    world.berlin.delete(kind, "default/copy").unwrap();
    told(&world, "True").await;
    world.berlin.create(copy).unwrap();
    told(&world, "False").await;
    world.team_a.delete(kind, "default/w").unwrap();
    let released = || world.team_a.get(kind, "default/w").is_none().then_some(());
    eventually(LIMIT, "the release", released).await;
    assert!(world.berlin.get(kind, "default/copy").is_some());
    assert_eq!(world.berlin.get(kind, &key("team-a", "w")), None);
    world.stop().await;
}
