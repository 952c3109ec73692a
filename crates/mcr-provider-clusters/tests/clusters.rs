//! What the fleet hears when clusters are added and removed.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeSet, time::Duration};

use futures::{FutureExt, StreamExt};
use mcr_core::{Access, Change, ClusterName, ClusterSpec, Discovery, Provider, Trust};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use tokio_util::sync::CancellationToken;

fn name(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

fn spec(cluster: &str) -> ClusterSpec {
    ClusterSpec::new(name(cluster), Access::kubeconfig(b"".as_slice(), Trust::Trusted))
}

fn shown(change: Change) -> String {
    match change {
        Change::Upsert(spec) => match spec.labels.get("v") {
            Some(version) => format!("+{} {version}", spec.name),
            None => format!("+{}", spec.name),
        },
        Change::Remove(name) => format!("-{name}"),
        Change::Broken(broken) => format!("!{} {}: {}", broken.name, broken.object, broken.error),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    }
}

/// All that can be heard without waiting.
fn received(discovery: &mut Discovery) -> Vec<String> {
    std::iter::from_fn(|| discovery.next().now_or_never().flatten())
        .map(|change| shown(change.unwrap()))
        .collect()
}

fn started() -> (ClustersHandle, Discovery) {
    let provider = ClustersProvider::new();
    (provider.handle(), provider.discover(CancellationToken::new()))
}

#[test]
fn p_01_no_clusters_initially() {
    let (handle, mut discovery) = started();
    assert!(handle.names().is_empty());
    assert_eq!(received(&mut discovery), ["synced"]);
}

#[test]
fn p_02_added_then_removed() {
    let (handle, mut discovery) = started();
    assert!(handle.add(spec("a")));
    assert_eq!(handle.names(), ["a"]);
    assert_eq!(received(&mut discovery), ["synced", "+a"]);
    assert!(handle.remove(&name("a")));
    assert!(handle.names().is_empty(), "gone at once");
    assert!(!handle.remove(&name("a")));
    assert_eq!(received(&mut discovery), ["-a"]);
}

#[test]
fn what_was_added_before_discovery_comes_before_synced() {
    let provider = ClustersProvider::builder()
        .provider_name("mine")
        .cluster(spec("b"))
        .build();
    assert_eq!(provider.name(), "mine");
    provider.handle().add(spec("a"));
    let stop = CancellationToken::new();
    for _ in 0..2 {
        let mut discovery = provider.discover(stop.clone());
        assert_eq!(received(&mut discovery), ["+a", "+b", "synced"]);
    }
    stop.cancel();
    assert!(
        provider
            .discover(stop)
            .next()
            .now_or_never()
            .is_some_and(|item| item.is_none())
    );
}

#[test]
fn adding_again_is_an_update_and_only_the_last_is_received() {
    let (handle, mut discovery) = started();
    assert!(handle.add(spec("a").label("v", "1")));
    assert_eq!(received(&mut discovery), ["synced", "+a 1"]);
    assert!(!handle.add(spec("a").label("v", "2")));
    assert!(!handle.add(spec("a").label("v", "3")));
    assert_eq!(received(&mut discovery), ["+a 3"]);
}

#[test]
fn broken_keeps_the_last_good_description_and_adding_mends_it() {
    let provider = ClustersProvider::new();
    let handle = provider.handle();
    handle.add(spec("a"));
    handle.broken(name("a"), "row 7", "no such region");
    handle.broken(name("b"), "row 8", "no address");
    assert_eq!(handle.names(), ["a", "b"]);
    let mut discovery = provider.discover(CancellationToken::new());
    assert_eq!(
        received(&mut discovery),
        ["+a", "!a row 7: no such region", "!b row 8: no address", "synced"]
    );
    handle.add(spec("a"));
    handle.remove(&name("b"));
    assert_eq!(received(&mut discovery), ["+a", "-b"]);
}

#[test]
fn a_cluster_that_changes_all_the_time_does_not_silence_the_others() {
    let (handle, mut discovery) = started();
    assert_eq!(received(&mut discovery), ["synced"]);
    let mut next = || {
        handle.add(spec("a"));
        shown(discovery.next().now_or_never().flatten().unwrap().unwrap())
    };
    assert_eq!(next(), "+a");
    handle.add(spec("z"));
    assert_eq!([next(), next()], ["+z", "+a"]);
}

// Go's provider deadlocks from the eleventh early add on, and whenever nobody receives any more.
#[test]
fn adding_never_blocks() {
    let provider = ClustersProvider::new();
    let handle = provider.handle();
    let mut discovery = provider.discover(CancellationToken::new());
    for i in 0..10_000 {
        handle.add(spec(&format!("c{i}")));
        handle.add(spec("same"));
    }
    assert_eq!(received(&mut discovery).len(), 1 + 10_001);
    drop(discovery);
    handle.add(spec("later"));
    assert_eq!(handle.names().len(), 10_002);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_change_is_lost_between_threads() {
    let (handle, mut discovery) = started();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let handle = handle.clone();
            tokio::spawn(async move {
                for i in 0..500 {
                    handle.add(spec(&format!("{writer}-{i}")));
                    if i % 2 == 0 {
                        handle.remove(&name(&format!("{writer}-{i}")));
                    }
                    if i % 50 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let mut there = BTreeSet::new();
    let mut hear = |change: Change| match change {
        Change::Upsert(spec) => drop(there.insert(spec.name)),
        Change::Remove(name) => drop(there.remove(&name)),
        _ => {}
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while writers.iter().any(|writer| !writer.is_finished()) {
        assert!(tokio::time::Instant::now() < deadline, "a writer is blocked");
        if let Ok(change) = tokio::time::timeout(Duration::from_millis(5), discovery.next()).await {
            hear(change.expect("the discovery goes on").unwrap());
        }
    }
    while let Some(Some(change)) = discovery.next().now_or_never() {
        hear(change.unwrap());
    }
    assert_eq!(there.into_iter().collect::<Vec<_>>(), handle.names());
}
