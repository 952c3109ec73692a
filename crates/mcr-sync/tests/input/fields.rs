//! Fields that a server drops, and fields that somebody else writes too.

use mcr_sync::{Conflicts, Related};

use crate::world::widgets::*;

const HOUR: Duration = secs(3600);
/// After this time without a write, a fight is over.
const CALM: Duration = secs(600);

/// A sync of the source `w`, with a copy of `settings` that is named `copy`.
fn in_mode(mode: Option<Conflicts>) -> Widgets {
    let settings = Related::<_, _, DynamicObject>::down_with("settings", &widgets());
    let settings = settings.named(|_, _| ["settings"]);
    let sync = sync().filter(|source| source.metadata.name.as_deref() == Some("w"));
    let sync = sync.related(settings.name_by(|_, _| "copy".to_owned()));
    match mode {
        Some(conflicts) => sync.server_side_apply(conflicts),
        None => sync,
    }
}

/// A world with `w` and `settings`. The one whose target has this name has this spec.
fn with_spec(target: &str, spec: &Value) -> World {
    let world = World::with(&[]);
    for (source, of) in [("w", "w"), ("settings", "copy")] {
        let spec = if of == target {
            spec.clone()
        } else {
            json!({"size": 1})
        };
        make(&world.team_a, source, spec);
    }
    world
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
async fn sync_fields_that_the_target_server_drops_are_reported_and_sent_again_each_day_and_at_each_start() {
    let text = json!({"type": "string"});
    let tags = |tag: Value| json!({"type": "array", "items": strict(tag)});
    let old = strict(json!({"size": {"type": "integer"}, "tags": tags(json!({"name": text}))}));
    let tags = tags(json!({"name": text, "color": text}));
    let all = open(json!({"tags": tags, "backup": strict(json!({"at": text}))}));
    // An empty value has no more effect than none.
    let spec = json!({"size": 1, "tags": [{"name": "a", "color": "canary-red"}], "backup": {"at": "canary-noon"},
        "none": {}, "off": false});
    let apply = Some(Conflicts::Revert);
    // Who may not read the definition sees no change.
    for (mode, target, restarts, reads) in [
        (None, "w", false, false),
        (None, "w", true, true),
        (apply, "w", false, true),
        (None, "copy", true, true),
    ] {
        let mut world = with_spec(target, &spec);
        schema(&world.berlin, old.clone());
        if !reads {
            allow_each(&world.berlin, &[("widgets", &["*"]), ("configmaps", &["*"])]);
        }
        world.begin(in_mode(mode));
        is_there(&world.berlin, target, 1).await;
        let message = world.reported("w", "FieldsDropped", "").await;
        let words = format!("the server of cluster berlin does not store these fields of default/{target}: ");
        let fields = "spec.backup, spec.tags[0].color; ";
        assert!(message.starts_with(&(words + fields)), "{message}");
        assert!(!message.contains("canary"), "{message}");
        let before = count(&world.berlin, "patch");
        sleep(if reads { HOUR } else { 23 * HOUR }).await;
        assert_eq!(count(&world.berlin, "patch"), before, "{mode:?}");
        schema(&world.berlin, all.clone());
        if restarts {
            world.stop().await;
            world.begin(in_mode(mode));
        }
        until(
            format!("all fields, {mode:?}, {target}, {restarts}, {reads}"),
            || {
                let target = &get(&world.berlin, target).unwrap()["spec"];
                target["backup"] == spec["backup"] && target["tags"] == spec["tags"]
            },
        )
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
async fn sync_field_that_somebody_else_sets_again_and_again_is_reported_and_written_once_a_minute() {
    let apply = Some(Conflicts::Revert);
    for (mode, source, target) in [(None, "w", "w"), (apply, "w", "w"), (None, "settings", "copy")] {
        let mut world = with_spec(target, &json!({"size": 1, "mode": "canary"}));
        world.begin(in_mode(mode));
        is_there(&world.berlin, target, 1).await;
        world.synced("w").await;
        let is_there_at_once = async |size| {
            let began = Instant::now();
            is_there(&world.berlin, target, size).await;
            assert!(began.elapsed() < secs(1));
        };
        // A change by hand is reverted at once.
        size(&world.berlin, target, 9);
        is_there_at_once(1).await;
        // The simulated server forgets each time that the apply took over the fields, which is a patch of its own.
        let is_write = |it: &SimAuditEvent| it.verb == "patch" && it.uri.contains("force=") == mode.is_some();
        let writes = || world.berlin.audit().count(is_write);
        let (before, reported) = (writes(), count(&world.team_a, "patch"));
        fight(&world.berlin, target, 1800).await;
        let message = world.reported("w", "FieldFight", "").await;
        let words = format!(
            "somebody else sets these fields of default/{target} in cluster berlin again and again: spec.size; "
        );
        let advice = "leave them out of the projection, or make the other controller leave them out. \
            The sync sets them at most once a minute";
        assert_eq!(message, words + advice, "{mode:?}");
        let (writes, reported) = (writes() - before, count(&world.team_a, "patch") - reported);
        assert!((30..45).contains(&writes), "{writes} writes, {mode:?}");
        assert!(reported <= 3, "the condition stays");
        // Another desired state is written at once.
        world.size(source, 2);
        is_there_at_once(2).await;
        world.synced("w").await;
        // A fight that is over is no longer reported.
        fight(&world.berlin, target, 10).await;
        world.reported("w", "FieldFight", "").await;
        is_there(&world.berlin, target, 2).await;
        sleep(CALM).await;
        world.synced("w").await;
    }
}

#[tokio::test(start_paused = true)]
async fn sync_write_that_is_refused_because_of_another_change_is_no_part_of_a_fight() {
    let apply = Some(Conflicts::Revert);
    for (mode, target) in [(None, "w"), (apply, "w"), (None, "copy")] {
        let mut world = with_spec(target, &json!({"size": 1}));
        world.begin(in_mode(mode));
        is_there(&world.berlin, target, 1).await;
        world.synced("w").await;
        // A controller of the target cluster is busy with the object, and leaves the fields of the sync alone.
        for nth in 0..5_u64 {
            let berlin = world.berlin.clone();
            let change = move || set(&berlin, target, &["spec", "seen"], nth);
            world.berlin_gate.now().collisions.push(Box::new(change));
        }
        size(&world.berlin, target, 9);
        let began = Instant::now();
        is_there(&world.berlin, target, 1).await;
        assert!(world.berlin_gate.now().collisions.is_empty());
        assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
        sleep(secs(60)).await;
        assert!(
            !world.events("w").iter().any(|event| event.contains("FieldFight")),
            "{target}"
        );
    }
}
