//! Reads the announcements of a discovery, with a deadline. Fails at once on an announcement that is never allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    pin::pin,
    time::Duration,
};

use futures::StreamExt;
use mcr_core::{BrokenCluster, Change, ClusterName, ClusterSpec, Discovery, Provider};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Ability, CANARY, Draft, Subject};
use crate::suite::fail;

/// How long a discovery may take to end: a number of short sleeps in the same runtime. On a busy machine, the sleeps
/// take longer too.
const STOPPING: (u32, Duration) = (100, Duration::from_millis(20));

/// The first number of a marker. A marker is a cluster that is added only so that the check can wait until it is
/// announced.
const MARKERS: usize = 1000;

pub(super) struct Received {
    discovery: Discovery,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
    patience: Duration,
    quiet: Duration,
    /// All announcements in order, in a short form.
    pub(super) log: Vec<String>,
    /// The announced clusters with their last good specs. Does not contain clusters that were only announced as
    /// broken.
    pub(super) clusters: BTreeMap<ClusterName, ClusterSpec>,
    pub(super) broken: BTreeMap<ClusterName, BrokenCluster>,
    pub(super) syncs: usize,
    /// The markers, and whether each was announced. `clusters` does not contain them.
    markers: BTreeMap<ClusterName, bool>,
}

impl Received {
    pub(super) fn start<S: Subject>(subject: &S) -> Self {
        let stop = CancellationToken::new();
        Self {
            discovery: subject.provider().discover(stop.clone()),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            patience: subject.patience(),
            quiet: subject.quiet(),
            log: Vec::new(),
            clusters: BTreeMap::new(),
            broken: BTreeMap::new(),
            syncs: 0,
            markers: BTreeMap::new(),
        }
    }

    /// Starts a discovery and reads until it is synced.
    pub(super) async fn synced<S: Subject>(subject: &S) -> Self {
        let mut received = Self::start(subject);
        received
            .until("Synced, once all that exists has been announced", |received| {
                received.syncs > 0
            })
            .await;
        received
    }

    /// Reads announcements until the condition holds. `what` names the expected announcement in the failure.
    #[track_caller]
    pub(super) fn until(
        &mut self,
        what: impl Display,
        so: impl Fn(&Self) -> bool,
    ) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + self.patience;
            while !so(self) {
                if tokio::time::timeout_at(deadline, self.next()).await.is_err() {
                    let patience = self.patience;
                    self.wrong(format!(
                        "within {patience:?} the provider should announce: {what} (expected at {caller})"
                    ));
                }
            }
        }
    }

    /// Reads announcements until a cluster has a spec for which the condition holds.
    pub(super) async fn until_spec(
        &mut self,
        name: &ClusterName,
        what: &str,
        so: impl Fn(&ClusterSpec) -> bool,
    ) {
        self.until(format!("an Upsert of {name} with {what}"), |received| {
            received.clusters.get(name).is_some_and(&so)
        })
        .await;
    }

    pub(super) async fn until_there(&mut self, name: &ClusterName) {
        self.until_spec(name, "anything", |_| true).await;
    }

    pub(super) async fn until_broken(&mut self, name: &ClusterName) {
        self.until(format!("Broken({name})"), |received| {
            received.broken.contains_key(name)
        })
        .await;
    }

    pub(super) async fn until_gone(&mut self, name: &ClusterName) {
        self.until(format!("a Remove of {name}"), |received| {
            !received.clusters.contains_key(name) && !received.broken.contains_key(name)
        })
        .await;
    }

    /// Reads announcements until the next `Upsert` of a cluster.
    pub(super) async fn until_announced_again(&mut self, name: &ClusterName) {
        let (line, from) = (format!("+{name}"), self.log.len());
        self.until(format!("an Upsert of {name}"), move |received| {
            received.log[from..].contains(&line)
        })
        .await;
    }

    /// Reads announcements for the subject's [`quiet`](Subject::quiet) time. If the subject can add clusters, then
    /// adds a marker and reads until it is announced. All earlier changes have then been announced. Returns the
    /// announcements of other clusters.
    pub(super) async fn listen<S: Subject>(&mut self, subject: &mut S) -> Vec<String> {
        let from = self.log.len();
        let end = Instant::now() + self.quiet;
        while tokio::time::timeout_at(end, self.next()).await.is_ok() {}
        if S::CAN.contains(&Ability::Add) {
            let marker = subject.add(&Draft::new(MARKERS + self.markers.len())).await;
            self.markers.insert(marker.clone(), false);
            self.until(format!("an Upsert of {marker}"), |received| {
                received.markers[&marker]
            })
            .await;
        }
        self.log[from..].to_vec()
    }

    /// Fails if anything is announced during [`listen`](Self::listen).
    pub(super) async fn silence<S: Subject>(&mut self, subject: &mut S, why: impl Display) {
        let announced = self.listen(subject).await;
        if !announced.is_empty() {
            self.wrong(format!("the provider announced {announced:?}, though {why}"));
        }
    }

    /// Cancels the token of the discovery, and waits until its stream has ended.
    pub(super) async fn stopped(mut self) {
        self.stop.cancel();
        let (pauses, pause) = STOPPING;
        let ended = {
            let mut end = pin!(async { while self.discovery.next().await.is_some() {} });
            let mut left = pauses;
            while left > 0 && timeout(pause, end.as_mut()).await.is_err() {
                left -= 1;
            }
            left > 0
        };
        if !ended {
            let limit = pause * pauses;
            self.wrong(format!(
                "the discovery did not end within {limit:?} after its token was cancelled"
            ));
        }
    }

    /// The last good spec of an announced cluster.
    #[track_caller]
    pub(super) fn spec(&self, name: &ClusterName) -> &ClusterSpec {
        match self.clusters.get(name) {
            Some(spec) => spec,
            None => self.wrong(format!("{name} should be there")),
        }
    }

    pub(super) fn names(&self) -> BTreeSet<ClusterName> {
        self.clusters.keys().cloned().collect()
    }

    async fn next(&mut self) {
        let change = match self.discovery.next().await {
            Some(Ok(change)) => change,
            Some(Err(error)) => self.wrong(format!("the discovery ended with an error: {error}")),
            None => self.wrong("the discovery ended, and its token was not cancelled"),
        };
        if format!("{change:?}").contains(CANARY) {
            self.wrong(format!(
                "a secret is seen in the Debug form of an announcement: the one with {CANARY} in it"
            ));
        }
        match change {
            Change::Upsert(spec) if self.markers.contains_key(&spec.name) => {
                self.markers.insert(spec.name, true);
            }
            Change::Upsert(spec) => {
                self.log.push(format!("+{}", spec.name));
                self.broken.remove(&spec.name);
                self.clusters.insert(spec.name.clone(), spec);
            }
            Change::Broken(broken) => {
                self.log.push(format!("!{}", broken.name));
                if broken.object.is_empty() || broken.error.is_empty() {
                    self.wrong(format!(
                        "Broken({}) must say which object is at fault and why",
                        broken.name
                    ));
                }
                if broken.error.contains(CANARY) || broken.object.contains(CANARY) {
                    self.wrong(format!("the error of Broken({}) holds a secret", broken.name));
                }
                self.broken.insert(broken.name.clone(), broken);
            }
            Change::Remove(name) => {
                self.log.push(format!("-{name}"));
                let was_there = self.clusters.remove(&name).is_some();
                if self.broken.remove(&name).is_none() && !was_there {
                    self.wrong(format!("Remove({name}) of a cluster that was not there"));
                }
            }
            Change::Synced => {
                self.log.push("synced".to_owned());
                self.syncs += 1;
                if self.syncs > 1 {
                    self.wrong("a discovery announces Synced once");
                }
            }
            _ => self.log.push("something newer than this suite".to_owned()),
        }
    }

    #[track_caller]
    pub(super) fn wrong(&self, what: impl Display) -> ! {
        fail(format!("{what}\nannounced so far: {}", self.log.join(" ")))
    }

    #[track_caller]
    pub(super) fn must(&self, so: bool, what: impl Display) {
        if !so {
            self.wrong(what);
        }
    }
}
