//! Children that are added, removed, and pass on what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use futures::{FutureExt, StreamExt, stream};
use mcr_core::{Change, ClusterName, Discovery, Provider};
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::{ChildState, MultiError, MultiProvider};
use support::{Act::*, *};
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
    assert_eq!(
        format!("{:?}", multi),
        "MultiProvider { name: \"multi\", separator: \"#\", children: [\"edge\", \"kind\"] }"
    );
}

#[tokio::test]
async fn without_children_it_is_synced_at_once() {
    let multi = MultiProvider::builder().build().unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["synced"]);
}

#[test]
fn bad_names_are_refused_with_what_to_do() {
    let error = |name: &'static str| {
        let multi = MultiProvider::builder()
            .child_as("kind", clusters("kind", &[]))
            .build()
            .unwrap();
        let error = multi.handle().add_as(name, clusters("x", &[])).unwrap_err();
        assert_eq!(multi.handle().names(), ["kind".into()], "nothing was added");
        error
    };
    assert_eq!(
        error("kind").to_string(),
        "there is a child named \"kind\" already; remove it first, or give this one another name with `child_as` or \
         `add_as`"
    );
    assert!(matches!(error(""), MultiError::EmptyName));
    assert!(matches!(error("a#b"), MultiError::SeparatorInName { .. }));
    assert!(matches!(error("a\nb"), MultiError::InvalidName { .. }));
    let twice = MultiProvider::builder()
        .child(clusters("kind", &[]))
        .child(clusters("kind", &[]));
    assert!(matches!(twice.build(), Err(MultiError::NameTaken(name)) if name == "kind"));
    let separator = MultiProvider::builder().separator("").build();
    assert_eq!(
        separator.unwrap_err().to_string(),
        "separator \"\" is empty or has control or format characters; cluster names are made of the child's name, separator and \
         cluster, so give one like \"#\""
    );
}

#[tokio::test]
async fn every_kind_of_change_is_passed_on_under_the_new_name() {
    let child = Scripted::new(
        "a",
        [vec![
            Upsert("x"),
            Broken("x"),
            Broken("y"),
            Synced,
            Remove("x"),
            Synced,
        ]],
    );
    let multi = MultiProvider::builder()
        .separator("::")
        .child(child)
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(
        now(&mut discovery),
        ["+a::x", "!a::x", "!a::y", "synced", "-a::x"]
    );
    assert_eq!(
        multi.handle().status("a").unwrap().clusters,
        1,
        "a broken one counts"
    );
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
async fn a_name_too_long_with_its_prefix_is_left_out_and_the_others_are_not() {
    let long = "x".repeat(ClusterName::MAX_LEN);
    let multi = MultiProvider::builder()
        .child(clusters("kind", &["a", &long, "z"]))
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["+kind#a", "+kind#z", "synced"]);
    assert_eq!(multi.handle().status("kind").unwrap().clusters, 2);
}

#[tokio::test]
async fn children_come_and_go_while_it_runs() {
    let multi = MultiProvider::builder()
        .child(clusters("kind", &["dev"]))
        .build()
        .unwrap();
    let children = multi.handle();
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["+kind#dev", "synced"]);

    let lab = clusters("lab", &["a"]);
    children.add(lab.clone()).unwrap();
    assert_eq!(now(&mut discovery), ["+lab#a"], "Synced is said once");
    lab.handle().add(spec("b"));
    lab.handle().broken(name("c"), "row 7", "no address");
    assert_eq!(now(&mut discovery), ["+lab#b", "!lab#c"]);
    assert_eq!(children.names(), ["kind".into(), "lab".into()]);
    let status = children.status("lab").unwrap();
    assert_eq!((status.state, status.clusters), (ChildState::Running, 3));
    assert!(status.synced && children.contains("lab"));

    assert!(children.remove("lab"));
    assert!(!children.remove("lab") && !children.contains("lab") && children.status("lab").is_none());
    assert_eq!(now(&mut discovery), ["-lab#a", "-lab#b", "-lab#c"]);
    lab.handle().add(spec("d"));
    assert!(now(&mut discovery).is_empty());

    children.add(lab).unwrap();
    let received = sorted(now(&mut discovery));
    assert_eq!(received, ["!lab#c", "+lab#a", "+lab#b", "+lab#d"]);
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
async fn a_child_removed_while_nobody_listens_is_reported_to_the_next_who_does() {
    let multi = MultiProvider::builder()
        .child(clusters("kind", &["dev"]))
        .child(clusters("lab", &["a", "b"]))
        .build()
        .unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    now(&mut discovery);
    drop(discovery);
    multi.handle().remove("lab");
    multi.handle().add(clusters("lab", &["b"])).unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    let received = now(&mut discovery);
    assert_eq!(received[..2], ["-lab#a", "-lab#b"]);
    assert_eq!(sorted(received[2..].to_vec()), ["+kind#dev", "+lab#b", "synced"]);
    drop(discovery);
    // Removed while it listens, but it does not live to say so.
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(sorted(now(&mut discovery)), ["+kind#dev", "+lab#b", "synced"]);
    multi.handle().remove("lab");
    drop(discovery);
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["-lab#b", "+kind#dev", "synced"]);
    // It had begun to say so.
    multi.handle().add(clusters("lab", &["a", "b"])).unwrap();
    assert_eq!(now(&mut discovery), ["+lab#a", "+lab#b"]);
    multi.handle().remove("lab");
    assert_eq!(shown(&discovery.next().await.unwrap().unwrap()), "-lab#a");
    drop(discovery);
    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery), ["-lab#b", "+kind#dev", "synced"]);
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

#[tokio::test]
async fn stopping_and_dropping_end_every_child() {
    let child = || Scripted::new("a", [vec![Upsert("x"), Synced]]);
    let (one, two) = (child(), child());
    let multi = MultiProvider::builder()
        .child_as("one", one.clone())
        .child_as("two", two.clone())
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    let mut discovery = multi.discover(stop.clone());
    assert_eq!(now(&mut discovery).len(), 3);
    assert_eq!((one.running(), two.running()), (1, 1));
    stop.cancel();
    assert!(discovery.next().now_or_never().is_some_and(|item| item.is_none()));
    assert_eq!(
        (one.running(), two.running()),
        (0, 0),
        "ended before it is dropped"
    );
    assert_eq!(multi.handle().status("one").unwrap().state, ChildState::Waiting);

    let mut discovery = multi.discover(CancellationToken::new());
    assert_eq!(now(&mut discovery).len(), 3);
    drop(discovery);
    assert_eq!((one.running(), two.running()), (0, 0));
}

/// A child that always has something to say.
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
    let mut hears = async |line: &str| {
        for _ in 0..20 {
            if shown(&discovery.next().await.unwrap().unwrap()) == line {
                return true;
            }
        }
        false
    };
    assert!(hears("+quiet#a").await);
    quiet.handle().add(spec("b"));
    assert!(hears("+quiet#b").await);
    multi.handle().remove("quiet");
    assert!(hears("-quiet#b").await);
    multi.handle().remove("chatter");
    assert!(hears("-chatter#loud").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn children_added_and_removed_by_many_threads_leave_what_is_there() {
    let multi = MultiProvider::builder().build().unwrap();
    let mut discovery = multi.discover(CancellationToken::new());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let children = multi.handle();
            tokio::spawn(async move {
                for i in 0..100 {
                    let name = format!("{thread}-{i}");
                    children.add_as(name.clone(), clusters("x", &["a"])).unwrap();
                    tokio::task::yield_now().await;
                    if i % 2 == 0 {
                        assert!(children.remove(&name));
                    }
                }
            })
        })
        .collect();
    let mut there = std::collections::BTreeSet::new();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    let mut ended = false;
    while !ended || there.len() != 200 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{} clusters are there",
            there.len()
        );
        ended = threads.iter().all(|thread| thread.is_finished());
        for line in within(&mut discovery, std::time::Duration::from_millis(20)).await {
            match line.split_at(1) {
                ("+", name) => drop(there.insert(name.to_owned())),
                ("-", name) => assert!(there.remove(name), "{name} was not there"),
                _ => {}
            }
        }
    }
    let expected = multi
        .handle()
        .names()
        .into_iter()
        .map(|child| format!("{child}#a"));
    assert_eq!(there, expected.collect());
}
