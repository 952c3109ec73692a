//! Fields that a server drops, and fields that somebody else writes too.

use mcr_sync::{Conflicts, Related};

use crate::world::widgets::*;

const HOUR: Duration = secs(3600);
/// After this time without a write, a fight is over.
const CALM: Duration = secs(600);

fn in_mode(mode: Option<Conflicts>) -> Widgets {
    match mode {
        Some(conflicts) => sync().server_side_apply(conflicts),
        None => sync(),
    }
}

/// An object that has these fields and no others.
fn strict(fields: Value) -> Value {
    json!({"type": "object", "properties": fields})
}

/// Somebody sets the size of a target each second for this time.
async fn fight(cluster: &SimCluster, name: &str, seconds: u64) {
    for _ in 0..seconds {
        if get(cluster, name).unwrap()["spec"]["size"] != 9 {
            size(cluster, name, 9);
        }
        sleep(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_fields_that_the_target_server_drops_are_told_and_sent_again_each_day_and_at_each_start() {
    let text = json!({"type": "string"});
    let tags = |tag: Value| json!({"type": "array", "items": strict(tag)});
    let old = strict(json!({"size": {"type": "integer"}, "tags": tags(json!({"name": text}))}));
    let tags = tags(json!({"name": text, "color": text}));
    let all = open(json!({"tags": tags, "backup": strict(json!({"at": text}))}));
    // An empty value says no more than none.
    let spec = json!({"size": 1, "tags": [{"name": "a", "color": "canary-red"}], "backup": {"at": "canary-noon"},
        "none": {}, "off": false});
    for (mode, restarts) in [(None, false), (None, true), (Some(Conflicts::Revert), true)] {
        let mut world = World::with(&[]);
        schema(&world.berlin, old.clone());
        make(&world.team_a, "w", spec.clone());
        world.begin(in_mode(mode));
        is_there(&world.berlin, "w", 1).await;
        let message = world.told("w", "FieldsDropped", "").await;
        let words = "the server of cluster berlin does not store these fields of default/w: spec.backup, spec.tags[0].color; ";
        assert!(message.starts_with(words), "{message}");
        assert!(!message.contains("canary"), "{message}");
        let before = count(&world.berlin, "patch");
        sleep(if restarts { HOUR } else { 23 * HOUR }).await;
        assert_eq!(count(&world.berlin, "patch"), before, "{mode:?}");
        schema(&world.berlin, all.clone());
        if restarts {
            world.stop().await;
            world.begin(in_mode(mode));
        } else {
            sleep(HOUR).await;
        }
        until(format!("all fields, {mode:?}, {restarts}"), || {
            let target = &get(&world.berlin, "w").unwrap()["spec"];
            target["backup"] == spec["backup"] && target["tags"] == spec["tags"]
        })
        .await;
        world.synced("w").await;
        let writes = count(&world.berlin, "patch");
        world.stop().await;
        world.begin(in_mode(mode));
        sleep(HOUR).await;
        let now = count(&world.berlin, "patch");
        assert_eq!(now, writes, "nothing is left to send");
    }
}

#[tokio::test(start_paused = true)]
async fn sync_field_that_somebody_else_sets_again_and_again_is_told_and_written_once_a_minute() {
    for mode in [None, Some(Conflicts::Revert)] {
        let mut world = World::with(&[]);
        make(&world.team_a, "w", json!({"size": 1, "mode": "canary"}));
        world.begin(in_mode(mode));
        is_there(&world.berlin, "w", 1).await;
        world.synced("w").await;
        let is_there_at_once = async |size| {
            let began = Instant::now();
            is_there(&world.berlin, "w", size).await;
            assert!(began.elapsed() < secs(1));
        };
        // A change by hand is reverted at once.
        size(&world.berlin, "w", 9);
        is_there_at_once(1).await;
        // The simulated server forgets each time that the fields were handed over to the apply, which is a patch of its own.
        let is_write = |it: &SimAuditEvent| it.verb == "patch" && it.uri.contains("force=") == mode.is_some();
        let writes = || world.berlin.audit().count(is_write);
        let (before, told) = (writes(), count(&world.team_a, "patch"));
        fight(&world.berlin, "w", 1800).await;
        let message = world.told("w", "FieldFight", "").await;
        let wanted = "somebody else sets these fields of default/w in cluster berlin again and again: spec.size; leave them \
            out of the projection, or let the other one leave them alone. The sync sets them at most once a minute";
        assert_eq!(message, wanted, "{mode:?}");
        let (writes, told) = (writes() - before, count(&world.team_a, "patch") - told);
        assert!((30..45).contains(&writes), "{writes} writes, {mode:?}");
        assert!(told <= 3, "the condition stays");
        // Another desired state is written at once.
        world.size("w", 2);
        is_there_at_once(2).await;
        world.synced("w").await;
        // A fight that is over is no longer told.
        fight(&world.berlin, "w", 10).await;
        world.told("w", "FieldFight", "").await;
        is_there(&world.berlin, "w", 2).await;
        sleep(CALM).await;
        world.synced("w").await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_copy_of_a_related_object_whose_fields_are_dropped_or_fought_for_is_told() {
    let mut world = World::with(&["w"]);
    make(&world.team_a, "settings", json!({"size": 4, "mode": "canary"}));
    schema(&world.berlin, strict(json!({"size": {"type": "integer"}})));
    let with_copy = || {
        let settings = Related::<_, _, DynamicObject>::down_with("settings", &widgets());
        let settings = settings.named(|_, _| ["settings"]);
        let sync = sync().filter(|source| source.metadata.name.as_deref() == Some("w"));
        sync.related(settings.name_by(|_, _| "copy".to_owned()))
    };
    world.begin(with_copy());
    let words = "the server of cluster berlin does not store these fields of default/copy: spec.mode; ";
    world.told("w", "FieldsDropped", words).await;
    schema(&world.berlin, sized(10));
    world.stop().await;
    world.begin(with_copy());
    world.synced("w").await;
    assert_eq!(get(&world.berlin, "copy").unwrap()["spec"]["mode"], "canary");
    let before = count(&world.berlin, "patch");
    fight(&world.berlin, "copy", 600).await;
    let words =
        "somebody else sets these fields of default/copy in cluster berlin again and again: spec.size; ";
    world.told("w", "FieldFight", words).await;
    let writes = count(&world.berlin, "patch") - before;
    assert!((10..25).contains(&writes), "{writes} writes");
    is_there(&world.berlin, "copy", 4).await;
    sleep(CALM).await;
    world.synced("w").await;
}
