//! Checks that run the provider in a fleet.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use mcr_core::{Cluster, ClusterName, ClusterState, Fleet};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Ability::{Add, Change},
    Draft, Subject,
    stream::world,
    tap::Tap,
};
use crate::suite::fail;

const GRACE: Duration = Duration::from_secs(2);

/// The first number of a marker. A marker is a cluster that is added only so that the check can wait until the fleet
/// has engaged it.
const MARKERS: usize = 1000;

struct Running {
    fleet: Fleet,
    tap: Tap,
    stop: CancellationToken,
    task: JoinHandle<()>,
    patience: Duration,
    quiet: Duration,
    /// How many markers were added.
    markers: AtomicUsize,
}

impl Running {
    /// Runs a fleet of the subject's provider until these clusters are engaged.
    async fn start<S: Subject>(subject: &S, names: &[ClusterName]) -> Self {
        let tap = Tap::new(subject.provider());
        let fleet = Fleet::builder()
            .provider(tap.clone())
            .settings(|settings| {
                // All clusters of a subject may have the same API server.
                settings.allow_duplicates = true;
                settings.removal_grace = GRACE;
                settings.drain_grace = Duration::from_secs(1);
            })
            .build();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (fleet, stop) = (fleet.clone(), stop.clone());
            async move { fleet.run(stop).await }
        });
        let running = Self {
            fleet,
            tap,
            stop,
            task,
            patience: subject.patience(),
            quiet: subject.quiet(),
            markers: AtomicUsize::new(0),
        };
        running
            .until("the provider announces Synced", || running.fleet.is_discovered())
            .await;
        // A task of the fleet engages a cluster shortly after the announcement.
        running
            .until(format!("{names:?} are engaged"), || {
                names.iter().all(|name| running.fleet.get(name).is_ok())
            })
            .await;
        running
    }

    async fn until(&self, what: impl std::fmt::Display, so: impl Fn() -> bool) {
        let deadline = Instant::now() + self.patience + GRACE;
        while !so() {
            if Instant::now() > deadline {
                fail(format!("not so in time: {what}; the fleet: {:?}", self.names()));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn names(&self) -> Vec<ClusterName> {
        self.fleet
            .clusters()
            .iter()
            .map(|cluster| cluster.name().clone())
            .collect()
    }

    #[track_caller]
    fn get(&self, name: &ClusterName) -> Cluster {
        match self.fleet.get(name) {
            Ok(cluster) => cluster,
            Err(error) => fail(format!("the cluster should be in the fleet: {error}")),
        }
    }

    /// Fails unless the fleet still has this engagement of the cluster.
    #[track_caller]
    fn must_keep(&self, cluster: &Cluster, why: &str) {
        let now = self.fleet.get(cluster.name()).ok();
        if !now.is_some_and(|now| now.is_same(cluster)) {
            fail(format!("{} was disengaged, though {why}", cluster.name()));
        }
    }

    /// Waits until the provider has made this announcement more than `before` times, and the fleet has processed it.
    async fn until_reported<S: Subject>(&self, subject: &mut S, line: String, before: usize) {
        self.until(format!("the provider announces {line}"), || {
            self.tap.count(&line) > before
        })
        .await;
        self.converged(subject).await;
    }

    /// Waits for the subject's [`quiet`](Subject::quiet) time. If the subject can add clusters, then adds a marker and
    /// waits until it is engaged. The fleet has then processed all earlier announcements.
    async fn converged<S: Subject>(&self, subject: &mut S) {
        sleep(self.quiet).await;
        if S::CAN.contains(&Add) {
            let number = MARKERS + self.markers.fetch_add(1, Ordering::Relaxed);
            let marker = subject.add(&Draft::new(number)).await;
            self.until(format!("{marker} is engaged"), || self.fleet.get(&marker).is_ok())
                .await;
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            fail(format!("the fleet panicked: {error}"));
        }
    }
}

pub(super) async fn the_fleet_lets_a_removed_cluster_go_entirely<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(3).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let running = Running::start(&subject, &names).await;
    let (leaving, staying) = (running.get(&names[0]), running.get(&names[1]));
    subject.remove(&drafts[0]).await;
    running
        .until("the removed cluster is Gone", || {
            leaving.state() == ClusterState::Gone
        })
        .await;
    if running.fleet.get(&names[0]).is_ok() || !leaving.token().is_cancelled() {
        fail("the removed cluster can still be had");
    }
    running.must_keep(&staying, "only its neighbour was removed");
    subject.remove(&drafts[1]).await;
    subject.remove(&drafts[2]).await;
    let fixed = subject.fixed().len();
    running
        .until("no cluster is left", || running.names().len() == fixed)
        .await;
    running.stop().await;
    drop((leaving, staying));
    let deadline = Instant::now() + subject.patience();
    while tasks() > before {
        if Instant::now() > deadline {
            fail(format!(
                "{} tasks are left of a fleet that has ended",
                tasks() - before
            ));
        }
        sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn the_fleet_sweeps_what_a_restart_no_longer_names<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(3).await;
    let running = Running::start(&subject, &names).await;
    let clusters: Vec<Cluster> = names.iter().map(|name| running.get(name)).collect();
    running.tap.cut();
    subject.remove(&drafts[1]).await;
    running.tap.reopen();
    running
        .until("a second round of discovery", || running.tap.count("synced") > 1)
        .await;
    running.must_keep(&clusters[1], "its grace has only begun");
    running
        .until("what is no longer named goes after its grace", || {
            running.fleet.get(&names[1]).is_err()
        })
        .await;
    running.must_keep(&clusters[0], "the restarted discovery named it");
    running.must_keep(&clusters[2], "the restarted discovery named it");
    running.stop().await;
}

pub(super) async fn the_fleet_replaces_a_cluster_of_another_identity<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let running = Running::start(&subject, &names).await;
    let (old, neighbour) = (running.get(&names[0]), running.get(&names[1]));
    subject.replace(&drafts[0].clone().replaced()).await;
    running
        .until("another engagement takes the name", || {
            running
                .fleet
                .get(&names[0])
                .is_ok_and(|new| new.epoch() > old.epoch())
        })
        .await;
    running
        .until("the old one is Gone", || old.state() == ClusterState::Gone)
        .await;
    running.must_keep(&neighbour, "only its neighbour was replaced");
    running.stop().await;
}

pub(super) async fn the_fleet_keeps_a_cluster_over_rotations_and_changes<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(1).await;
    let running = Running::start(&subject, &names).await;
    let cluster = running.get(&names[0]);
    let line = format!("+{}", names[0]);
    let mut draft = drafts[0].clone();
    for _ in 0..3 {
        let before = running.tap.count(&line);
        draft = draft.rotated();
        subject.rotate(&draft).await;
        running.until_reported(&mut subject, line.clone(), before).await;
        running.must_keep(&cluster, "only its credentials changed");
    }
    // The cluster does not answer. So without a declared identity, the fleet treats another address as another
    // cluster.
    if S::CAN.contains(&Change) && cluster.identity().is_some() {
        let before = running.tap.count(&line);
        subject.change(&draft.changed()).await;
        running.until_reported(&mut subject, line, before).await;
        running.must_keep(&cluster, "only its labels or address changed");
    }
    running.stop().await;
}

pub(super) async fn the_fleet_keeps_a_cluster_whose_description_broke<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(2).await;
    let running = Running::start(&subject, &names).await;
    let cluster = running.get(&names[0]);
    subject.break_it(&drafts[0]).await;
    let warned = || {
        let snapshot = running.fleet.snapshot();
        let mut clusters = snapshot.clusters.iter();
        clusters.any(|status| status.name == names[0] && !status.warnings.is_empty())
    };
    running
        .until("the broken description is shown as a warning", warned)
        .await;
    running.converged(&mut subject).await;
    running.must_keep(&cluster, "its last good description goes on");
    subject.repair(&drafts[0]).await;
    running
        .until("the warning goes when the description is repaired", || !warned())
        .await;
    running.must_keep(&cluster, "it was only repaired");
    running.stop().await;
}

pub(super) async fn the_fleet_shows_a_suspended_cluster<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(1).await;
    let running = Running::start(&subject, &names).await;
    let cluster = running.get(&names[0]);
    let suspended = || matches!(cluster.state(), ClusterState::Suspended { .. });
    subject.suspend(&drafts[0]).await;
    running.until("the cluster is Suspended", suspended).await;
    subject.resume(&drafts[0]).await;
    running
        .until("the cluster is no longer Suspended", || !suspended())
        .await;
    running.must_keep(&cluster, "it was only suspended");
    running.stop().await;
}

pub(super) async fn the_fleet_keeps_a_cluster_being_deleted<S: Subject>() {
    let (mut subject, drafts, names) = world::<S>(1).await;
    let running = Running::start(&subject, &names).await;
    let cluster = running.get(&names[0]);
    subject.begin_deletion(&drafts[0]).await;
    running.converged(&mut subject).await;
    running.must_keep(
        &cluster,
        "finalizers in it must be releasable while its object is being deleted",
    );
    subject.finish_deletion(&drafts[0]).await;
    running
        .until("the cluster goes with its object", || {
            cluster.state() == ClusterState::Gone
        })
        .await;
    running.stop().await;
}
