//! Sources that a sync selects by their labels. One that loses them is cleaned up, whenever that happens, and whatever is lost with them.

use kube::core::Expression;
use mcr::Predicate;
use mcr_testkit::log::Log;

use crate::world::widgets::*;

/// Labels that change: the other value, or none.
type Labels = &'static [(&'static str, Option<&'static str>)];
const LOSES: Labels = &[("copy", Some("no"))];
const GAINS: Labels = &[("copy", Some("yes"))];
const LOSES_MARK: Labels = &[(RECORD, None)];
const LOSES_BOTH: Labels = &[("copy", Some("no")), (RECORD, None)];

/// Selects the sources with this value of a label, which is `yes` when they are made.
fn with(value: &str) -> Widgets {
    sync().source_labels(Expression::Equal("copy".into(), value.into()))
}

fn label(world: &World, name: &str, changes: Labels) {
    let mut source = get(&world.team_a, name).unwrap();
    let labels = source["metadata"]["labels"].as_object_mut().unwrap();
    labels.extend(changes.iter().map(|(key, to)| ((*key).to_owned(), (*to).into())));
    labels.retain(|_, value| !value.is_null());
    world.team_a.update(source).unwrap();
}

fn finalizers(cluster: &SimCluster, all: &[&str]) {
    set(cluster, "w", &["metadata", "finalizers"], json!(all));
}

/// The finalizer, the record and the mark of the source.
fn taken(world: &World) -> [bool; 3] {
    let meta = get(&world.team_a, "w").unwrap()["metadata"].take();
    let finalizer = meta["finalizers"].to_string().contains("sync.mcr.dev/widgets");
    [
        finalizer,
        meta["annotations"][RECORD].is_string(),
        meta["labels"][RECORD] == "true",
    ]
}

async fn is_released(world: &World, what: &str) {
    until(what, || taken(world) == [false; 3]).await;
    assert!(get(&world.berlin, "w").is_none(), "{what}");
}

/// Nothing is asked or written for half an hour.
async fn is_quiet(world: &World, what: &str) {
    sleep(secs(60)).await;
    let requests = || ["get", "patch", "list"].map(|verb| count(&world.team_a, verb));
    let before = requests();
    sleep(secs(1800)).await;
    assert_eq!(requests(), before, "{what}");
}

#[tokio::test(start_paused = true)]
async fn sync_source_that_loses_its_labels_is_cleaned_up_whenever_that_happens() {
    let (stopped, other) = (Some("yes"), Some("other"));
    for (what, next, change, has_target) in [
        ("it runs", None, LOSES, true),
        ("it is stopped", stopped, LOSES, true),
        ("it is stopped, without the target", stopped, LOSES, false),
        ("the mark is lost, too", None, LOSES_BOTH, true),
        ("it is stopped, without the mark", stopped, LOSES_BOTH, true),
        ("another selector", other, GAINS, true),
        ("another selector, without the target", other, GAINS, false),
        ("the first selector", stopped, LOSES, true),
    ] {
        let log = Log::of_this_thread(tracing::Level::INFO);
        let had_selector = what != "the first selector";
        let first = if had_selector { with("yes") } else { sync() };
        let mut world = World::of(&["w"], first).await;
        if next.is_some() {
            world.stop().await;
        }
        label(&world, "w", change);
        if !has_target {
            delete(&world.berlin, "w");
        }
        next.into_iter().for_each(|next| world.begin(with(next)));
        is_released(&world, what).await;
        is_quiet(&world, what).await;
        assert_eq!(log.lines_with("no longer has the labels").len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn sync_marks_a_source_once_and_finds_it_by_its_record_without_the_finalizer() {
    let mut world = World::with(&["w", "other"]);
    // The manifest of another source.
    label(&world, "other", &[("copy", Some("no")), (RECORD, Some("true"))]);
    world.begin(with("yes"));
    world.synced("w").await;
    is_quiet(&world, "a mark without a finalizer").await;
    label(&world, "w", LOSES_MARK);
    until("the mark", || taken(&world) == [true; 3]).await;
    is_quiet(&world, "a mark that was removed").await;
    let is_of_all = |it: &SimAuditEvent| it.is_list("widgets") && !it.uri.contains("labelSelector=");
    assert_eq!(world.team_a.audit().count(is_of_all), 0);
    let before = count(&world.team_a, "patch");
    world.stop().await;
    world.begin(with("yes"));
    is_quiet(&world, "a restart").await;
    assert_eq!(count(&world.team_a, "patch"), before);
    // Before the program sees either.
    label(&world, "w", LOSES);
    finalizers(&world.team_a, &[]);
    is_gone(&world.berlin, "w").await;
    is_quiet(&world, "a record without a finalizer").await;
    world.stop().await;
    delete(&world.team_a, "w");
    make(&world.team_a, "w", json!({"size": 1}));
    world.begin(sync());
    world.synced("w").await;
    assert_eq!(taken(&world), [true, true, false], "no selector, no mark");
}

/// The user limits the watch by a label, too. Who leaves that watch keeps its targets, as without a selector.
#[tokio::test(start_paused = true)]
async fn sync_labels_of_sources_are_joined_with_those_of_build_with_and_each_sync_has_its_mark() {
    let gold = |sync: Widgets| sync.build_with(|it| it.watch_request(|request| request.labels("tier=gold")));
    let mut world = World::with(&["w", "lead"]);
    label(&world, "w", &[("tier", Some("gold"))]);
    let kind = crate::world::widgets();
    let other = Widgets::with("others", &kind, &kind).source_labels(Expression::Exists("copy".into()));
    let sources = ClusterSelector::label("role", "source");
    let other = other
        .from(sources)
        .to(name("lyon"))
        .project(|source, _| spec_of(source));
    world.run([gold(with("yes")).unwrap(), other.build().unwrap()], "");
    world.synced("w").await;
    let of_other = || world.lyon.list(WIDGETS, "default").len();
    until("the other sync", || of_other() == 2).await;
    assert!(get(&world.berlin, "lead").is_none());
    label(&world, "w", &[("tier", Some("lead"))]);
    world.waits("no longer in the watch").await;
    assert_eq!(taken(&world), [true; 3]);
    label(&world, "w", &[("tier", Some("gold"))]);
    until("no failure", || world.failing().is_empty()).await;
    label(&world, "w", LOSES);
    is_released(&world, "the first sync").await;
    let source = get(&world.team_a, "w").unwrap();
    assert_eq!(source["metadata"]["labels"]["sync.mcr.dev/placed.others"], "true");
    assert_eq!(of_other(), 2);
}

/// As on a standby, which drops the request of an object that leaves its watch.
#[tokio::test(start_paused = true)]
async fn sync_source_without_its_labels_is_found_although_no_event_leads_to_it() {
    let mut world = World::with(&["w"]);
    let deaf = with("yes").build_with(|it| it.event_filter(Predicate::new(|change| change.initial)));
    world.begin_with(deaf.unwrap());
    is_there(&world.berlin, "w", 1).await;
    sleep(secs(60)).await;
    label(&world, "w", LOSES);
    is_released(&world, "no event").await;
}
