//! Children that are added, removed and fail.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use mcr_core::{Change, Discovery, Fleet, Provider};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::{ChildState, MultiError, MultiProvider};
use support::{Act::*, *};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

fn clusters(provider: &'static str, names: &[&str]) -> ClustersProvider {
    let mut builder = ClustersProvider::builder().provider_name(provider);
    for name in names {
        builder = builder.cluster(spec(name));
    }
    builder.build()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

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

#[tokio::test]
async fn clusters_are_named_after_their_child_and_synced_comes_last() {
    let multi = MultiProvider::builder()
        .child(clusters("kind", &["dev", "prod"]))
        .child_as("edge", clusters("kind", &["dev"]))
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    let received = now(&mut discovery);
    assert_eq!(received.last().map(String::as_str), Some("synced"));
    assert_eq!(
        sorted(received),
        ["+edge#dev", "+kind#dev", "+kind#prod", "synced"]
    );
    assert_eq!(multi.name(), "multi");
    assert_eq!(multi.handle().split("kind#dev"), Some(("kind", "dev")));
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let multi = MultiProvider::builder()
        .child(clusters("kind", &[]))
        .build()
        .unwrap();
    let taken = multi.handle().add(clusters("kind", &[])).unwrap_err();
    assert_eq!(taken, MultiError::NameTaken("kind".into()));
    assert_eq!(multi.handle().names(), ["kind".into()]);
    let searched = multi.searched();
    assert!(searched.starts_with("kind: "), "{searched}");
    assert!(multi.handle().remove("kind") && !multi.handle().remove("kind"));
    assert_eq!(multi.searched(), "no provider. To add one, call MultiHandle::add");
}

#[tokio::test]
async fn a_cluster_reports_which_child_it_comes_from_unless_that_has_been_announced() {
    let inner = ClustersProvider::builder()
        .cluster(spec("mine"))
        .cluster(spec("passed-on").announced_by("origin"))
        .build();
    let multi = MultiProvider::builder().child_as("kind", inner).build().unwrap();
    let announced: Vec<_> = multi
        .discover(CancellationToken::new())
        .take(2)
        .map(|change| match change.unwrap() {
            Change::Upsert(spec) => spec.announced_by.as_deref().map(str::to_owned),
            other => panic!("{other:?}"),
        })
        .collect()
        .await;
    assert_eq!(announced, [Some("kind".to_owned()), Some("origin".to_owned())]);
}

#[tokio::test]
async fn of_a_child_that_is_replaced_everything_leaves_before_anything_joins() {
    let old = Scripted::new("lab", [vec![Upsert("a"), Upsert("b"), Synced]]);
    let multi = MultiProvider::builder().child(old.clone()).build().unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["+lab#a", "+lab#b", "synced"]);
    multi.handle().remove("lab");
    multi.handle().add(clusters("lab", &["b", "c"])).unwrap();
    assert_eq!(now(&mut discovery), ["-lab#a", "-lab#b", "+lab#b", "+lab#c"]);
    assert_eq!(old.running(), 0, "the old child has been dropped");
}

#[tokio::test]
async fn multi_in_multi_is_split_at_the_first_separator() {
    let inner = MultiProvider::builder()
        .child_as("b", clusters("kind", &["dev"]))
        .build()
        .unwrap();
    let outer = MultiProvider::builder()
        .child_as("a", inner.clone())
        .build()
        .unwrap();
    let mut discovery = outer.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["+a#b#dev", "synced"]);
    let (child, rest) = outer.handle().split("a#b#dev").unwrap();
    assert_eq!((child, rest), ("a", "b#dev"));
    assert_eq!(inner.handle().split(rest), Some(("b", "dev")));
    inner.handle().remove("b");
    assert_eq!(now(&mut discovery), ["-a#b#dev"]);
}

/// A child that never stops announcing.
struct Chatter;

impl Provider for Chatter {
    fn name(&self) -> &str {
        "chatter"
    }
    fn discover(&self, _: CancellationToken) -> Discovery {
        stream::repeat_with(|| Ok(Change::Upsert(spec("loud")))).boxed()
    }
}

#[tokio::test]
async fn a_child_that_never_stops_talking_silences_nobody() {
    let quiet = clusters("quiet", &["a"]);
    let multi = MultiProvider::builder()
        .child(Chatter)
        .child(quiet.clone())
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    let mut receives = async |line: &str| {
        for _ in 0..20 {
            if shown(&discovery.next().await.unwrap().unwrap()) == line {
                return true;
            }
        }
        false
    };
    assert!(receives("+quiet#a").await);
    quiet.handle().add(spec("b"));
    assert!(receives("+quiet#b").await);
    multi.handle().remove("quiet");
    assert!(receives("-quiet#b").await);
    multi.handle().remove("chatter");
    assert!(receives("-chatter#loud").await);
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
        assert_eq!(sick.stopped(), [true, false], "work for it elsewhere is stopped");
        let status = multi.handle().status("sick").unwrap();
        assert_eq!((status.state, status.restarts), (ChildState::Running, 1));
        assert_eq!(status.last_error.as_deref(), Some(error));
        assert_eq!(healthy.stopped(), [false]);
        assert!(within(&mut discovery, 10 * MINUTE).await.is_empty());
    }
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

    // It does not; and another announces nothing at all.
    let sick = Scripted::new("sick", [vec![Fail("no hub")]]);
    let silent = Scripted::new("silent", [vec![Hang]]);
    let (multi, mut discovery) = started([sick, silent, healthy()]);
    let begun = Instant::now();
    assert_eq!(until(&mut discovery, "synced").await, ["+well#x", "synced"]);
    assert!(begun.elapsed() >= seconds(30) && begun.elapsed() < seconds(31));
    assert!(!multi.handle().status("silent").unwrap().synced);
    assert!(
        within(&mut discovery, 10 * MINUTE).await.is_empty(),
        "Synced is announced once"
    );
}

#[tokio::test(start_paused = true)]
async fn held_clusters_are_released_in_all_discoveries() {
    let lost = || vec![Upsert("a"), Upsert("b"), Synced, Wait(1), Fail("no hub")];
    let sick = Scripted::new("sick", [lost(), lost(), vec![Synced]]);
    let (multi, mut first) = started([sick]);
    let mut second = multi.discover(CancellationToken::new());
    for discovery in [&mut first, &mut second] {
        assert_eq!(now(discovery), ["+sick#a", "+sick#b", "synced"]);
    }
    for discovery in [&mut first, &mut second] {
        assert!(within(discovery, 10 * MINUTE).await.is_empty(), "both are held");
    }
    assert!(multi.handle().release_held("sick"));
    for discovery in [&mut first, &mut second] {
        assert_eq!(now(discovery), ["-sick#a", "-sick#b"]);
    }
}

/// Passes on the changes of another provider, and fails when it is cut, once.
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
    // In the grace after its child has synced nothing goes.
    tokio::time::sleep(seconds(25)).await;
    assert_eq!(names(), all);
    assert_eq!(fleet.snapshot().providers[0].restarts, 1);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(names(), ["sick#a", "sick#b", "sick#c", "well#x"]);
    assert!(fleet.get("sick#a").unwrap().is_same(&before[0]));
    assert!(fleet.snapshot().providers[0].synced);
    stop.cancel();
    task.await.unwrap();
}
