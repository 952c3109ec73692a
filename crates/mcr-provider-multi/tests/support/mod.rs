//! Helpers of the tests: providers that follow a script, and the announcements of a discovery.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use mcr_core::{Access, BrokenCluster, Change, ClusterName, ClusterSpec, Discovery, Provider, Trust};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub(crate) fn name(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

pub(crate) fn spec(cluster: &str) -> ClusterSpec {
    // Asleep, so that a fleet does not dial it.
    ClusterSpec::new(name(cluster), Access::kubeconfig(b"".as_slice(), Trust::Trusted)).suspended("a test")
}

/// One thing a scripted discovery does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Upsert(&'static str),
    Broken(&'static str),
    Remove(&'static str),
    Synced,
    /// Announces nothing for so many seconds.
    Wait(u64),
    Fail(&'static str),
    Panic,
    /// Panics in `discover` itself.
    NoStart,
    /// Announces nothing any more. Every script ends so, unless with `End`.
    Hang,
    End,
}

/// A provider whose discoveries follow one script each, the last one over and over.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Inner>);

struct Inner {
    name: &'static str,
    scripts: Mutex<VecDeque<Vec<Act>>>,
    stops: Mutex<Vec<CancellationToken>>,
    running: Arc<AtomicUsize>,
}

impl Scripted {
    pub(crate) fn new(name: &'static str, scripts: impl IntoIterator<Item = Vec<Act>>) -> Self {
        Self(Arc::new(Inner {
            name,
            scripts: Mutex::new(scripts.into_iter().collect()),
            stops: Mutex::default(),
            running: Arc::default(),
        }))
    }

    /// Whether each of its discoveries was stopped.
    pub(crate) fn stopped(&self) -> Vec<bool> {
        let stops = self.0.stops.lock().unwrap();
        stops.iter().map(CancellationToken::is_cancelled).collect()
    }

    /// How many discoveries have been started and not dropped.
    pub(crate) fn running(&self) -> usize {
        self.0.running.load(Ordering::SeqCst)
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        self.0.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.0.stops.lock().unwrap().push(stop.clone());
        let script = {
            let mut scripts = self.0.scripts.lock().unwrap();
            match scripts.len() {
                1 => scripts[0].clone(),
                _ => scripts.pop_front().unwrap(),
            }
        };
        assert!(script.first() != Some(&Act::NoStart), "no start today");
        self.0.running.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(self.0.running.clone());
        let acts = script.into_iter().chain([Act::Hang]);
        stream::unfold((acts, counted), async |(mut acts, counted)| {
            let mut act = acts.next()?;
            while let Act::Wait(seconds) = act {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                act = acts.next()?;
            }
            let item = match act {
                Act::Upsert(name) => Ok(Change::Upsert(spec(name))),
                Act::Broken(cluster) => Ok(Change::Broken(BrokenCluster::new(
                    name(cluster),
                    "file x",
                    "cut short",
                ))),
                Act::Remove(cluster) => Ok(Change::Remove(name(cluster))),
                Act::Synced => Ok(Change::Synced),
                Act::Fail(error) => Err(error.into()),
                Act::Panic => panic!("out of order"),
                Act::Hang => std::future::pending().await,
                Act::End | Act::NoStart | Act::Wait(_) => return None,
            };
            Some((item, (acts, counted)))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

pub(crate) fn shown(change: &Change) -> String {
    match change {
        Change::Upsert(spec) => format!("+{}", spec.name),
        Change::Remove(name) => format!("-{name}"),
        Change::Broken(broken) => format!("!{}", broken.name),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    }
}

/// All that is announced without waiting.
pub(crate) fn now(discovery: &mut Discovery) -> Vec<String> {
    std::iter::from_fn(|| discovery.next().now_or_never().flatten())
        .map(|change| shown(&change.unwrap()))
        .collect()
}

/// All that is announced within a time.
pub(crate) async fn within(discovery: &mut Discovery, time: Duration) -> Vec<String> {
    let end = Instant::now() + time;
    let mut received = Vec::new();
    while let Ok(item) = timeout_at(end, discovery.next()).await {
        received.push(shown(&item.expect("the discovery goes on").unwrap()));
    }
    received
}

/// What is announced until this is.
pub(crate) async fn until(discovery: &mut Discovery, line: &str) -> Vec<String> {
    let mut received = Vec::new();
    while received.last().is_none_or(|last| last != line) {
        let item = tokio::time::timeout(Duration::from_secs(600), discovery.next()).await;
        let Ok(item) = item else {
            panic!("not announced: {line}, but {received:?}")
        };
        received.push(shown(&item.expect("the discovery goes on").unwrap()));
    }
    received
}
