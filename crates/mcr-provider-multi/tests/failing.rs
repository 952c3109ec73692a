//! Children that fail, in paused time: minutes pass in milliseconds.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use mcr_core::{Change, Discovery, Fleet, Provider};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::{ChildState, MultiProvider};
use support::{Act::*, *};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn started(children: impl IntoIterator<Item = Scripted>) -> (MultiProvider, Discovery) {
    let mut builder = MultiProvider::builder();
    for child in children {
        builder = builder.child(child);
    }
    let multi = builder.build().unwrap();
    let discovery = multi.discover(CancellationToken::new());
    (multi, discovery)
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_is_started_again_with_growing_pauses() {
    let child = Scripted::new("sick", [vec![Fail("no hub")]]);
    let (multi, mut discovery) = started([child.clone()]);
    assert_eq!(within(&mut discovery, 10 * MINUTE).await, ["synced"]);
    let starts = child.starts();
    let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (i, pause) in pauses.iter().enumerate() {
        let full = Duration::from_millis(500 << i.min(10)).min(MINUTE);
        let slack = Duration::from_millis(2);
        assert!(*pause <= full + slack && *pause >= full / 2, "{i}: {pause:?}");
    }
    assert!(
        (15..=30).contains(&starts.len()),
        "{} starts in ten minutes",
        starts.len()
    );
    let status = multi.handle().status("sick").unwrap();
    assert_eq!(status.restarts, starts.len() as u64);
    assert!(!status.synced);
    match status.state {
        ChildState::Failing { error, .. } => assert_eq!(&*error, "no hub"),
        other => panic!("{other:?}"),
    }
}

/// Without the message of the panic, which may hold a secret.
const PANICKED: &str = "the provider's discovery panicked, which is a fault in its code; what this process has written to its \
    standard error says where";

#[tokio::test(start_paused = true)]
async fn whichever_way_a_child_fails_the_others_run_and_it_comes_back() {
    let ways = [
        (Fail("no hub"), "no hub"),
        (End, "the provider ended its discovery before it was stopped"),
        (Panic, PANICKED),
        (NoStart, PANICKED),
    ];
    for (way, error) in ways {
        let sick = Scripted::new("sick", [vec![way], vec![Upsert("a"), Synced]]);
        let healthy = Scripted::new("well", [vec![Upsert("x"), Synced]]);
        let (multi, mut discovery) = started([sick.clone(), healthy.clone()]);
        assert_eq!(now(&mut discovery), ["+well#x"]);
        let status = multi.handle().status("sick").unwrap();
        assert!(
            matches!(&status.state, ChildState::Failing { error: shown, .. } if **shown == *error),
            "{status:?}"
        );
        assert_eq!(sick.running(), 0, "what failed is dropped");
        assert_eq!(within(&mut discovery, seconds(1)).await, ["+sick#a", "synced"]);
        assert_eq!(
            sick.stopped(),
            [true, false],
            "who works for it elsewhere is told"
        );
        let status = multi.handle().status("sick").unwrap();
        assert_eq!((status.state, status.restarts), (ChildState::Running, 1));
        assert_eq!(status.last_error.as_deref(), Some(error));
        assert_eq!(healthy.stopped(), [false]);
        assert!(within(&mut discovery, 10 * MINUTE).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_run_makes_the_next_pause_short_again() {
    let fails = (0..8).map(|_| vec![Fail("no hub")]);
    let child = Scripted::new(
        "sick",
        fails.chain([vec![Wait(90), Fail("cut off")], vec![Synced]]),
    );
    let (multi, mut discovery) = started([child.clone()]);
    within(&mut discovery, 10 * MINUTE).await;
    let starts = child.starts();
    assert_eq!(starts.len(), 10);
    assert!(starts[8] - starts[7] > seconds(20), "pauses had grown");
    assert!(starts[9] - starts[8] < seconds(91), "and are short again");
    assert!(multi.handle().status("sick").unwrap().synced);
}

#[tokio::test(start_paused = true)]
async fn what_a_restarted_child_no_longer_names_goes_after_the_grace_and_not_before() {
    let child = Scripted::new(
        "kind",
        [
            vec![
                Upsert("a"),
                Upsert("b"),
                Upsert("c"),
                Broken("d"),
                Synced,
                Fail("cut off"),
            ],
            vec![Upsert("a"), Fail("again"), Synced],
            vec![Upsert("a"), Upsert("b"), Upsert("c"), Synced],
        ],
    );
    let (_multi, mut discovery) = started([child.clone()]);
    let begun = until(&mut discovery, "synced").await;
    assert_eq!(begun, ["+kind#a", "+kind#b", "+kind#c", "!kind#d", "synced"]);
    // The second discovery fails before Synced, so it says nothing of what it did not name.
    assert_eq!(
        until(&mut discovery, "+kind#c").await,
        ["+kind#a", "+kind#a", "+kind#b", "+kind#c"]
    );
    let synced = Instant::now();
    assert_eq!(until(&mut discovery, "-kind#d").await, ["-kind#d"]);
    let after = synced.elapsed();
    assert!(after >= seconds(30) && after < seconds(31), "after {after:?}");
    assert!(within(&mut discovery, 10 * MINUTE).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_within_the_grace_stays() {
    let child = Scripted::new(
        "kind",
        [
            vec![Upsert("a"), Upsert("b"), Synced, Fail("cut off")],
            vec![Upsert("a"), Synced, Upsert("b")],
        ],
    );
    let (_multi, mut discovery) = started([child]);
    until(&mut discovery, "synced").await;
    assert_eq!(within(&mut discovery, 10 * MINUTE).await, ["+kind#a", "+kind#b"]);
}

#[tokio::test(start_paused = true)]
async fn most_clusters_of_a_child_at_once_are_held_until_someone_reports_so() {
    let small = Scripted::new(
        "small",
        [
            vec![Upsert("a"), Upsert("b"), Upsert("c"), Synced, Fail("cut off")],
            vec![Upsert("a"), Synced],
        ],
    );
    // Of all clusters it is not even half: each child is judged by itself.
    let names = ["1", "2", "3", "4", "5", "6"];
    let large = Scripted::new("large", [names.map(Upsert).into_iter().chain([Synced]).collect()]);
    let (multi, mut discovery) = started([small, large]);
    until(&mut discovery, "synced").await;
    assert_eq!(within(&mut discovery, 10 * MINUTE).await, ["+small#a"]);
    let children = multi.handle();
    let status = children.status("small").unwrap();
    assert_eq!((status.clusters, status.held), (3, 2));
    assert!(!children.release_held("nobody") && children.release_held("small"));
    assert_eq!(within(&mut discovery, MINUTE).await, ["-small#b", "-small#c"]);
    let status = children.status("small").unwrap();
    assert_eq!((status.clusters, status.held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn synced_waits_for_a_failing_child_but_not_for_ever() {
    // It recovers in time.
    let sick = Scripted::new(
        "sick",
        [
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Upsert("a"), Synced],
        ],
    );
    let healthy = || Scripted::new("well", [vec![Upsert("x"), Synced]]);
    let (_multi, mut discovery) = started([sick, healthy()]);
    assert_eq!(
        until(&mut discovery, "synced").await,
        ["+well#x", "+sick#a", "synced"]
    );

    // It does not; and another says nothing at all.
    let sick = Scripted::new("sick", [vec![Fail("no hub")]]);
    let silent = Scripted::new("silent", [vec![Hang]]);
    let (multi, mut discovery) = started([sick, silent, healthy()]);
    let begun = Instant::now();
    assert_eq!(until(&mut discovery, "synced").await, ["+well#x", "synced"]);
    assert!(begun.elapsed() >= seconds(30) && begun.elapsed() < seconds(31));
    assert!(!multi.handle().status("silent").unwrap().synced);
    assert!(
        within(&mut discovery, 10 * MINUTE).await.is_empty(),
        "Synced is said once"
    );
}

#[tokio::test(start_paused = true)]
async fn synced_does_not_wait_for_a_child_that_was_removed() {
    let silent = Scripted::new("silent", [vec![Upsert("a"), Hang]]);
    let (multi, mut discovery) = started([silent]);
    assert_eq!(now(&mut discovery), ["+silent#a"]);
    multi.handle().remove("silent");
    assert_eq!(now(&mut discovery), ["-silent#a", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_of_all_a_child_that_can_not_list_yet_keeps_its_clusters() {
    let sick = Scripted::new(
        "sick",
        [
            vec![Upsert("a"), Upsert("b"), Upsert("c"), Broken("d"), Synced],
            // The new discovery: it gets as far as "a", and much later lists.
            vec![Upsert("a"), Fail("no hub")],
            vec![Hang],
        ],
    );
    let healthy = Scripted::new(
        "well",
        [vec![Upsert("x"), Upsert("y"), Synced], vec![Upsert("x"), Synced]],
    );
    let (multi, mut discovery) = started([sick.clone(), healthy]);
    until(&mut discovery, "synced").await;
    drop(discovery);

    let mut discovery = multi.discover(CancellationToken::new());
    let mut received = until(&mut discovery, "synced").await;
    received.sort();
    assert_eq!(
        received,
        ["!sick#d", "+sick#a", "+sick#b", "+sick#c", "+well#x", "synced"],
        "what is known of the sick child is said, and what the healthy one lost is not"
    );
    assert!(within(&mut discovery, 10 * MINUTE).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_announced_for_a_late_child_goes_when_the_child_does_not_name_it() {
    let late = Scripted::new(
        "late",
        [
            vec![Upsert("a"), Upsert("b"), Upsert("c"), Synced],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Fail("no hub")],
            vec![Upsert("a"), Upsert("b"), Synced],
        ],
    );
    let (multi, mut discovery) = started([late]);
    until(&mut discovery, "synced").await;
    drop(discovery);
    let mut discovery = multi.discover(CancellationToken::new());
    let begun = until(&mut discovery, "synced").await;
    assert_eq!(begun, ["+late#a", "+late#b", "+late#c", "synced"]);
    assert_eq!(
        within(&mut discovery, 10 * MINUTE).await,
        ["+late#a", "+late#b", "-late#c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_great_loss_over_a_restart_of_all_is_held_too() {
    let child = Scripted::new("kind", [vec![Upsert("a"), Upsert("b"), Synced], vec![Synced]]);
    let other = Scripted::new(
        "well",
        [["1", "2", "3", "4"]
            .map(Upsert)
            .into_iter()
            .chain([Synced])
            .collect()],
    );
    let (multi, mut discovery) = started([child, other]);
    until(&mut discovery, "synced").await;
    drop(discovery);
    let mut discovery = multi.discover(CancellationToken::new());
    let received = until(&mut discovery, "synced").await;
    assert!(
        received.contains(&"+kind#a".into()) && received.contains(&"+kind#b".into()),
        "{received:?}"
    );
    assert!(within(&mut discovery, 10 * MINUTE).await.is_empty());
    assert_eq!(multi.handle().status("kind").unwrap().held, 2);
    multi.handle().release_held("kind");
    assert_eq!(within(&mut discovery, MINUTE).await, ["-kind#a", "-kind#b"]);
}

/// Passes on what another provider says, and fails when it is cut, once.
struct Cut(MultiProvider, Arc<Notify>);

impl Provider for Cut {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let cut = self.1.clone().notified_owned();
        let failed = stream::iter([Err("cut off".into())]);
        self.0.discover(stop).take_until(cut).chain(failed).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_provider_starts_anew_sweeps_only_what_a_child_no_longer_names() {
    let sick = Scripted::new(
        "sick",
        [
            vec![Upsert("a"), Upsert("b"), Upsert("c"), Synced],
            vec![Fail("no hub")],
        ],
    );
    let well = Scripted::new(
        "well",
        [vec![Upsert("x"), Upsert("y"), Synced], vec![Upsert("x"), Synced]],
    );
    let multi = MultiProvider::builder().child(sick).child(well).build().unwrap();
    let cut = Arc::new(Notify::new());
    let fleet = Fleet::builder().provider(Cut(multi, cut.clone())).build();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });
    let names = || -> Vec<String> { fleet.clusters().iter().map(|c| c.name().to_string()).collect() };
    let all = ["sick#a", "sick#b", "sick#c", "well#x", "well#y"];
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(names(), all);
    let before = fleet.clusters();
    cut.notify_waiters();
    // Until Synced nothing goes, and in the grace after it neither.
    tokio::time::sleep(seconds(55)).await;
    assert_eq!(names(), all);
    assert_eq!(fleet.snapshot().providers[0].restarts, 1);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(names(), ["sick#a", "sick#b", "sick#c", "well#x"]);
    assert!(fleet.get("sick#a").unwrap().is_same(&before[0]));
    assert!(fleet.snapshot().providers[0].synced);
    stop.cancel();
    task.await.unwrap();
}

/// Panics when its discovery is dropped.
struct Sore;

struct Stream(bool);

impl futures::Stream for Stream {
    type Item = Result<Change, mcr_core::BoxError>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let first = std::mem::replace(&mut self.0, false);
        std::task::Poll::Ready(first.then_some(Ok(Change::Synced)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        panic!("sore");
    }
}

impl Provider for Sore {
    fn name(&self) -> &str {
        "sore"
    }
    fn discover(&self, _: CancellationToken) -> Discovery {
        Box::pin(Stream(true))
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_panics_when_it_is_dropped_takes_nobody_along() {
    let healthy = ClustersProvider::new();
    let multi = MultiProvider::builder()
        .child(Sore)
        .child_as("well", healthy.clone())
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(within(&mut discovery, MINUTE).await, ["synced"]);
    healthy.handle().add(spec("x"));
    assert_eq!(within(&mut discovery, MINUTE).await, ["+well#x"]);
    drop(discovery);
}
