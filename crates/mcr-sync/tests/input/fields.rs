//! Fields that a server drops, and fields that somebody else writes too.

use std::time::Duration;

use kube::core::DynamicObject;
use mcr_sync::{Conflicts, Related};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    gate::Gate,
    world::{LIMIT, WIDGETS, Widgets, World, allow, crd, is_there, sync, widget, widgets},
};

const HOUR: Duration = Duration::from_secs(3600);
/// After this time without a write, a fight is over.
const CALM: Duration = Duration::from_secs(600);
const MODES: [Option<Conflicts>; 2] = [None, Some(Conflicts::Revert)];

fn in_mode(mode: Option<Conflicts>) -> Widgets {
    match mode {
        Some(conflicts) => sync().server_side_apply(conflicts),
        None => sync(),
    }
}

/// A kind whose spec has these fields and no others.
fn strict(fields: Value) -> Value {
    let mut strict = crd();
    strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    strict
}

/// A world whose target cluster keeps the managers of fields, and serves this kind.
fn new_world(kind: Value) -> World {
    let mut world = World::new();
    world.berlin = SimCluster::builder().name("berlin").build();
    allow(&world.berlin, &["*"]);
    world.berlin.create(kind).unwrap();
    world
}

/// A sync of `w` that takes `settings` along, as `copy`.
fn with_copy() -> Widgets {
    let settings = Related::<DynamicObject, DynamicObject, DynamicObject>::down_with("settings", &widgets())
        .named(|_, _| ["settings"])
        .name_by(|_, _| "copy".to_owned());
    let is_source = |source: &DynamicObject| source.metadata.name.as_deref() == Some("w");
    sync().filter(is_source).related(settings)
}

fn count(cluster: &SimCluster, verb: &str, subresource: bool) -> usize {
    let audit = cluster.audit();
    audit.count(|event| {
        event.verb == verb
            && event.resource.starts_with("widgets")
            && event.resource.ends_with("/status") == subresource
    })
}

#[tokio::test(start_paused = true)]
async fn sync_fields_that_the_target_server_drops_are_told_and_sent_again_each_day_and_at_each_start() {
    let name = json!({"name": {"type": "string"}, "color": {"type": "string"}});
    let with = |tag: &Value| json!({"size": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "object", "properties": tag}}});
    let old = strict(with(&json!({"name": name["name"]})));
    let mut all = with(&name);
    all["backup"] = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    // An empty value says no more than none.
    let spec = json!({"size": 1, "tags": [{"name": "a", "color": "canary-red"}], "backup": {"at": "canary-noon"}, "none": {}, "off": false});
    for (mode, restarts) in [(None, false), (None, true), (Some(Conflicts::Revert), true)] {
        let mut world = new_world(old.clone());
        world.team.create(widget("default", "w", spec.clone())).unwrap();
        world.start(in_mode(mode));
        is_there(&world.berlin, "default/w", 1).await;
        let message = world.told("w", "FieldsDropped").await;
        let words = "the server of cluster berlin does not store these fields of default/w: spec.backup, spec.tags[0].color; ";
        assert!(message.starts_with(words), "{message}");
        assert!(!message.contains("canary"), "{message}");
        let before = count(&world.berlin, "patch", false);
        sleep(if restarts { HOUR } else { 23 * HOUR }).await;
        assert_eq!(count(&world.berlin, "patch", false), before, "{mode:?}");
        let mut kind = world
            .berlin
            .get("customresourcedefinitions.apiextensions.k8s.io", WIDGETS)
            .unwrap();
        kind["spec"] = strict(all.clone())["spec"].clone();
        world.berlin.update(kind).unwrap();
        if restarts {
            world.stop().await;
            world.start(in_mode(mode));
        } else {
            sleep(HOUR).await;
        }
        let whole = || {
            let spec = world.berlin.get(WIDGETS, "default/w")?["spec"].take();
            (spec["backup"]["at"] == "canary-noon" && spec["tags"][0]["color"] == "canary-red").then_some(())
        };
        eventually(LIMIT, format!("all fields, {mode:?}, {restarts}"), whole).await;
        world.told("w", "Synced").await;
        let writes = count(&world.berlin, "patch", false);
        world.stop().await;
        world.start(in_mode(mode));
        sleep(HOUR).await;
        assert_eq!(
            count(&world.berlin, "patch", false),
            writes,
            "nothing is left to send"
        );
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_field_that_somebody_else_sets_again_and_again_is_told_and_written_once_a_minute() {
    for mode in MODES {
        let mut world = new_world(crd());
        world
            .team
            .create(widget("default", "w", json!({"size": 1, "mode": "canary"})))
            .unwrap();
        world.start(in_mode(mode));
        is_there(&world.berlin, "default/w", 1).await;
        world.told("w", "Synced").await;
        // A change by hand is reverted at once.
        let set = |size: u64| {
            let mut target = world.berlin.get(WIDGETS, "default/w").unwrap();
            if target["spec"]["size"] != size {
                target["spec"]["size"] = size.into();
                world.berlin.update(target).unwrap();
            }
        };
        set(9);
        let began = Instant::now();
        is_there(&world.berlin, "default/w", 1).await;
        assert!(began.elapsed() < Duration::from_secs(1));
        // The simulated server forgets each time that the fields were handed over to the apply, which is a patch of its own.
        let writes = || {
            world
                .berlin
                .audit()
                .count(|event| event.verb == "patch" && event.uri.contains("force=") == mode.is_some())
        };
        let (before, told) = (writes(), count(&world.team, "patch", true));
        for _ in 0..1800 {
            set(9);
            sleep(Duration::from_secs(1)).await;
        }
        let message = world.told("w", "FieldFight").await;
        assert_eq!(
            message,
            "somebody else sets these fields of default/w in cluster berlin again and again: spec.size; \
            leave them out of the projection, or let the other one leave them alone. The sync sets them at most once a minute",
            "{mode:?}"
        );
        let in_half_an_hour = writes() - before;
        assert!(
            (30..45).contains(&in_half_an_hour),
            "{in_half_an_hour} writes, {mode:?}"
        );
        assert!(
            count(&world.team, "patch", true) - told <= 3,
            "the condition stays"
        );
        // Another desired state is written at once.
        world.edit("w", json!({"size": 2}));
        let began = Instant::now();
        is_there(&world.berlin, "default/w", 2).await;
        assert!(began.elapsed() < Duration::from_secs(1));
        world.told("w", "Synced").await;
        // A fight that is over is no longer told.
        for _ in 0..40 {
            set(9);
            sleep(Duration::from_millis(250)).await;
        }
        world.told("w", "FieldFight").await;
        is_there(&world.berlin, "default/w", 2).await;
        sleep(CALM).await;
        world.told("w", "Synced").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_copy_of_a_related_object_whose_fields_are_dropped_or_fought_for_is_told() {
    let mut world = new_world(strict(json!({"size": {"type": "integer"}})));
    let start = |world: &mut World| world.start(with_copy());
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world
        .team
        .create(widget(
            "default",
            "settings",
            json!({"size": 4, "mode": "canary"}),
        ))
        .unwrap();
    start(&mut world);
    let message = world.told("w", "FieldsDropped").await;
    let words = "the server of cluster berlin does not store these fields of default/copy: spec.mode; ";
    assert!(message.starts_with(words), "{message}");
    let mut kind = world
        .berlin
        .get("customresourcedefinitions.apiextensions.k8s.io", WIDGETS)
        .unwrap();
    kind["spec"] = crd()["spec"].clone();
    world.berlin.update(kind).unwrap();
    world.stop().await;
    start(&mut world);
    world.told("w", "Synced").await;
    assert_eq!(
        world.berlin.get(WIDGETS, "default/copy").unwrap()["spec"]["mode"],
        "canary"
    );
    let before = count(&world.berlin, "patch", false);
    for _ in 0..600 {
        let mut copy = world.berlin.get(WIDGETS, "default/copy").unwrap();
        copy["spec"]["size"] = 9.into();
        world.berlin.update(copy).unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    let message = world.told("w", "FieldFight").await;
    let words =
        "somebody else sets these fields of default/copy in cluster berlin again and again: spec.size; ";
    assert!(message.starts_with(words), "{message}");
    let writes = count(&world.berlin, "patch", false) - before;
    assert!((10..25).contains(&writes), "{writes} writes");
    is_there(&world.berlin, "default/copy", 4).await;
    sleep(CALM).await;
    world.told("w", "Synced").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_write_that_is_refused_because_of_another_change_is_no_part_of_a_fight() {
    let [merges, applies] = MODES.map(in_mode);
    for (sync, key) in [
        (merges, "default/w"),
        (applies, "default/w"),
        (with_copy(), "default/copy"),
    ] {
        let (mut world, gate) = (new_world(crd()), Gate::default());
        for name in ["w", "settings"] {
            let source = widget("default", name, json!({"size": 1}));
            world.team.create(source).unwrap();
        }
        world.start_with(sync.build().unwrap(), [gate.before(&world.berlin, "target")]);
        is_there(&world.berlin, key, 1).await;
        world.told("w", "Synced").await;
        // A controller of the target cluster is busy with the object, and leaves the fields of the sync alone.
        let change = move |cluster: &SimCluster, field: &str, value: Value| {
            let mut target = cluster.get(WIDGETS, key).unwrap();
            target["spec"][field] = value;
            cluster.update(target).unwrap();
        };
        for nth in 0..5 {
            let berlin = world.berlin.clone();
            gate.collide(move || change(&berlin, "seen", nth.into()));
        }
        change(&world.berlin, "size", 9.into());
        let began = Instant::now();
        is_there(&world.berlin, key, 1).await;
        assert_eq!(gate.collisions(), 0);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        sleep(Duration::from_secs(60)).await;
        let events = world.team.list("events.events.k8s.io", "default");
        let is_told = events.iter().any(|event| event["reason"] == "FieldFight");
        assert!(!is_told, "{key}: {events:?}");
        world.stop().await;
    }
}
