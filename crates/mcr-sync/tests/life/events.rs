//! Events on the source.

use std::time::Duration;

use mcr::{Access, ClusterSpec};
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimUser},
    waiting::eventually,
};
use serde_json::{Value, json};

use crate::world::*;

/// The events of the kind that the sync publishes: reason, type and text.
fn events(cluster: &SimCluster, source: &str) -> Vec<(String, String, String)> {
    let all = cluster.list("events.events.k8s.io", "default");
    let of = all
        .iter()
        .filter(|event| event["regarding"]["name"] == source && event["regarding"]["kind"] == "ConfigMap");
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    of.map(|event| (text(event, "reason"), text(event, "type"), text(event, "note")))
        .collect()
}

async fn told(cluster: &SimCluster, source: &str, reason: &str) -> (String, String) {
    let what = format!("the event {reason} of {source}");
    let found = || {
        let mut events = events(cluster, source).into_iter();
        events
            .find(|event| event.0 == reason)
            .map(|(_, type_, note)| (type_, note))
    };
    eventually(LIMIT, what, found).await
}

fn pair(type_: &str, note: String) -> (String, String) {
    (type_.to_owned(), note)
}

#[tokio::test]
async fn sync_events_tell_what_was_done_and_what_is_wrong() {
    let mut world = World::new();
    let place = key("team-a", "db");
    world
        .berlin
        .create(map(
            place.trim_start_matches("default/"),
            json!({"size": "theirs"}),
        ))
        .unwrap();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.start(to_berlin().publish_events(true));
    let (type_, note) = told(&world.team_a, "db", "NameTaken").await;
    assert_eq!(type_, "Warning");
    assert!(
        note.starts_with(&format!("{place} in cluster berlin belongs to somebody else")),
        "{note}"
    );
    world.berlin.delete("configmaps", &place).unwrap();
    // No event of the target cluster comes, but one of the source.
    let mut source = world.team_a.get("configmaps", "default/db").unwrap();
    source["data"]["size"] = "2".into();
    world.team_a.update(source).unwrap();
    let created = told(&world.team_a, "db", "TargetCreated").await;
    assert_eq!(
        created,
        pair("Normal", format!("created {place} in cluster berlin"))
    );
    let over = told(&world.team_a, "db", "Synced").await;
    assert_eq!(
        over,
        pair("Normal", "all targets are as they should be".to_owned())
    );
    world.team_a.delete("configmaps", "default/db").unwrap();
    let deleted = told(&world.team_a, "db", "TargetDeleted").await;
    assert_eq!(
        deleted,
        pair("Normal", format!("deleted {place} in cluster berlin"))
    );
    world.stop().await;
    assert_eq!(events(&world.team_a, "db").len(), 4, "each of them once");
    assert!(world.berlin.list("events.events.k8s.io", "default").is_empty());
}

#[tokio::test]
async fn sync_a_target_that_is_given_up_is_told_as_an_event() {
    let mut world = World::new();
    for source in ["noted", "late"] {
        world.team_a.create(map(source, json!({"size": "1"}))).unwrap();
    }
    let sync = || {
        to_berlin()
            .publish_events(true)
            .abandon_after(Duration::from_secs(2))
    };
    world.start(sync());
    for source in ["noted", "late"] {
        data(&world.berlin, &world.team_a, source, json!({"size": "1"})).await;
    }
    world.clusters.remove("berlin");
    world.team_a.delete("configmaps", "default/late").unwrap();
    let mut noted = world.team_a.get("configmaps", "default/noted").unwrap();
    noted["metadata"]["annotations"][mcr_sync::ABANDON] = "berlin".into();
    world.team_a.update(noted).unwrap();
    world.team_a.delete("configmaps", "default/noted").unwrap();
    for source in ["noted", "late"] {
        let (type_, note) = told(&world.team_a, source, "TargetAbandoned").await;
        assert_eq!(type_, "Warning");
        let place = key("team-a", source);
        assert!(
            note.starts_with(&format!("gave up {place} in cluster berlin, which is away")),
            "{note}"
        );
        gone(&world.team_a, &format!("default/{source}")).await;
        assert!(target(&world.berlin, &world.team_a, source).is_some());
    }
    world.stop().await;
}

#[tokio::test]
async fn sync_events_that_are_refused_hold_up_nothing() {
    let mut world = World::new();
    world.team_a.create(map("db", json!({"size": "1"}))).unwrap();
    world.team_a.set_user(
        "sync",
        SimUser::new("sync").rule(SimRule::new([""], ["configmaps"], ["*"])),
    );
    world.start(to_berlin().publish_events(true));
    let access = Access::from(world.team_a.client_with_token("sync"));
    let spec = ClusterSpec::named("team-a", access).unwrap();
    world.clusters.add(spec.label("role", "source"));
    world.team_a.create(map("next", json!({"size": "1"}))).unwrap();
    data(&world.berlin, &world.team_a, "next", json!({"size": "1"})).await;
    let refused = || {
        let audit = world.team_a.audit();
        let mut events = audit.events();
        events
            .find(|event| event.resource.starts_with("events") && event.code == 403)
            .map(|_| ())
    };
    eventually(LIMIT, "an event that was refused", refused).await;
    world.team_a.delete("configmaps", "default/next").unwrap();
    gone(&world.team_a, "default/next").await;
    world.stop().await;
}
