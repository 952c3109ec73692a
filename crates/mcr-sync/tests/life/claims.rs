//! Names that are taken, and objects that name a source without being its target.

use mcr_sync::PAUSED;

use crate::world::widgets::*;

#[tokio::test(start_paused = true)]
async fn sync_adoption_follows_only_a_creation_that_the_server_refused() {
    let mut world = World::with(&["db", "free"]);
    make(&world.berlin, "db", json!({"size": 7}));
    world.begin(sync().adopt(|found| found.data["spec"]["size"] == 7));
    is_there(&world.berlin, "db", 1).await;
    is_there(&world.berlin, "free", 1).await;
    let audit = world.berlin.audit();
    let position = |verb: &str, code: u16, name: &str| {
        let is_it = |it: &SimAuditEvent| (&*it.verb, it.code, &*it.name) == (verb, code, name);
        audit
            .events()
            .position(|it| it.resource == "widgets" && is_it(it))
    };
    // The audit log has no name for a creation.
    let (refused, read) = (position("create", 409, ""), position("get", 200, "db"));
    assert!(refused.is_some() && refused < read, "{refused:?} {read:?}");
    assert!(read < position("patch", 200, "db"));
    // A name that is free costs one request.
    assert_eq!(position("get", 404, "free"), None);
}

#[tokio::test(start_paused = true)]
async fn sync_name_that_is_taken_by_another_object_is_used_once_it_is_free() {
    let mut world = World::with(&["w"]);
    make(&world.berlin, "w", json!({"size": 7}));
    world.begin(sync());
    let taken = "Warning NameTaken default/w in cluster berlin belongs to somebody else";
    world.event("w", taken).await;
    // Watches of targets leave out objects without the labels of the sync, so nothing announces this.
    delete(&world.berlin, "w");
    is_there(&world.berlin, "w", 1).await;
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
async fn sync_an_object_that_names_a_source_and_is_not_its_target_is_reported_and_not_touched() {
    let mut world = World::of(&["w"], sync()).await;
    // Somebody copies the target under another name.
    let mut copy = anew(&get(&world.berlin, "w").unwrap());
    copy["metadata"]["name"] = "copy".into();
    let kept = world.berlin.create(copy).unwrap();
    let words = "default/copy in cluster berlin names this source too";
    world.reported("w", "ClaimedTwice", words).await;
    // The target is still kept as it should be.
    size(&world.berlin, "w", 7);
    is_there(&world.berlin, "w", 1).await;
    // A restart reports it again, and a deletion of the source does not reach the copy.
    world.stop().await;
    set(&world.team_a, "w", &["status", "conditions"], json!([]));
    world.begin(sync());
    world.condition_is("w", "ClaimedTwice", words).await;
    world.ends("w").await;
    assert_eq!(get(&world.berlin, "copy"), Some(kept));
    assert_eq!(get(&world.berlin, "w"), None);
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn sync_metrics_count_placements_by_state_and_writes_by_verb_and_result() {
    use mcr::metrics::prometheus_client::{encoding::text::encode, registry::Registry};
    let mut world = World::with(&["db", "free"]);
    make(&world.berlin, "db", json!({"size": 7}));
    let (sync, mut registry) = (sync(), Registry::default());
    registry.register_collector(Box::new(sync.metrics()));
    let text = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    };
    let shows = |line: &str| text().lines().any(|it| it == line);
    let writes = |verb: &str, result: &str, count: usize| {
        let labels = format!(r#"sync="widgets",verb="{verb}",result="{result}""#);
        shows(&format!("mcr_sync_writes_total{{{labels}}} {count}"))
    };
    let placements = |state: &str, count: usize| {
        shows(&format!(
            r#"mcr_sync_placements{{sync="widgets",state="{state}"}} {count}"#
        ))
    };
    world.begin(sync);
    until("one taken name", || {
        placements("synced", 1) && placements("taken", 1)
    })
    .await;
    // Each attempt to create the one whose name is taken is refused.
    let refused = r#"verb="create",result="conflict"}"#;
    assert!(
        writes("create", "done", 1) && text().contains(refused),
        "{}",
        text()
    );
    sleep(secs(7)).await;
    let is_zero = || shows(r#"mcr_sync_oldest_unsynced_seconds{sync="widgets"} 0.0"#);
    assert!(!is_zero(), "{}", text());
    // Somebody changes the target between the observation and the write, which the server refuses.
    let berlin = world.berlin.clone();
    let change = move || set(&berlin, "free", &["spec", "seen"], 1);
    world.berlin_gate.now().collisions.push(Box::new(change));
    world.size("free", 2);
    is_there(&world.berlin, "free", 2).await;
    until("the update", || writes("update", "done", 1)).await;
    assert!(writes("update", "conflict", 1), "{}", text());
    delete(&world.berlin, "db");
    until("all", || {
        placements("synced", 2) && !text().contains("taken") && is_zero()
    })
    .await;
    annotate(&world.team_a, "db", PAUSED, "true");
    world.condition_is("db", "Paused", "").await;
    sleep(secs(7)).await;
    assert!(is_zero(), "{}", text());
    world.ends("free").await;
    assert!(writes("delete", "done", 1), "{}", text());
}
