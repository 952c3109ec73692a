//! Cleans up in the clusters that the controller does not select.

mod brake;

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use mcr_core::{
    Cluster, ClusterName, ClusterNotFound, ClusterState, DISPLAY_NAME, HUB,
    internal::{Permit, jitter},
};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::brake::Brake;
use crate::{
    controller::{
        engine::{Engine, plan::CleanUp},
        member::Member,
        run::leading::in_term,
    },
    failure::{Failure, panic_text},
};

/// How many clean-ups begin at once that did not fail the last time, and how many others: those that fail, perhaps since they hang,
/// keep only each other waiting.
const AT_ONCE: usize = 16;
/// How long a clean-up keeps others waiting. One that takes longer waits for its cluster.
const HOLD: Duration = Duration::from_secs(1);
/// How long a cluster must at least be Ready and not selected: its labels may be about to change.
const QUIET: Duration = Duration::from_secs(10);
/// The time limit in a controller without one.
const LIMIT: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How often the log has a warning of one cluster.
const WARNS_EVERY: Duration = Duration::from_secs(3600);

/// The clusters that the selector of the controller excludes. Each is cleaned up once.
pub(super) struct CleanUps {
    work: Arc<Work>,
    stop: CancellationToken,
    /// Also those that have been cleaned up.
    begun: HashMap<ClusterName, JoinHandle<()>>,
    /// How many aborted clean-ups of a cluster may still run.
    ending: HashMap<ClusterName, usize>,
    ended: JoinSet<ClusterName>,
}

struct Work {
    engine: Arc<Engine>,
    call: CleanUp,
    permits: [Arc<Semaphore>; 2],
    brake: Mutex<Brake>,
}

impl CleanUps {
    /// None if the controller does not clean up.
    pub(super) fn new(engine: &Arc<Engine>, stop: CancellationToken) -> Option<Self> {
        let work = Work {
            engine: engine.clone(),
            call: engine.core.plan.settings.on_deselected.clone()?,
            permits: [(); 2].map(|()| Arc::new(Semaphore::new(AT_ONCE))),
            brake: Mutex::default(),
        };
        Some(Self {
            work: Arc::new(work),
            stop,
            begun: HashMap::new(),
            ending: HashMap::new(),
            ended: JoinSet::new(),
        })
    }

    /// Follows a cluster that may have changed. `was`: its membership, if the controller selected it until now.
    pub(super) fn update(&mut self, cluster: &Cluster, selected: bool, was: Option<Arc<Member>>) {
        let excluded = !selected && self.work.engine.core.excludes(cluster);
        self.work.brake.lock().update(cluster, selected, excluded);
        match (self.begun.contains_key(cluster.name()), excluded) {
            (true, false) => self.end(cluster.name()),
            (false, true) => self.begin(cluster.clone(), was),
            _ => {}
        }
    }

    /// The cluster has left the fleet.
    pub(super) fn left(&mut self, name: &ClusterName) {
        self.work.brake.lock().remove(name);
        self.end(name);
    }

    /// Aborts the clean-up of a cluster that may be selected. Until [`ended`], it may still run.
    pub(super) fn end(&mut self, name: &ClusterName) {
        let Some(task) = self.begun.remove(name).filter(|task| !task.is_finished()) else {
            return;
        };
        task.abort();
        *self.ending.entry(name.clone()).or_default() += 1;
        let (limit, name) = (self.work.limit(), name.clone());
        self.ended.spawn(async move {
            // One that never awaits can't be aborted.
            let _ = timeout(limit, task).await;
            name
        });
    }

    /// Whether an aborted clean-up of the cluster may still run.
    pub(super) fn is_ending(&self, name: &ClusterName) -> bool {
        self.ending.contains_key(name)
    }

    /// Cleans up again where it has been done: another replica, perhaps with another selector, may have led since.
    pub(super) fn repeat(&mut self) {
        self.begun.retain(|_, task| !task.is_finished());
        let engine = self.work.engine.clone();
        for cluster in engine.fleet.clusters() {
            if !self.begun.contains_key(cluster.name()) && engine.core.excludes(&cluster) {
                self.begin(cluster, None);
            }
        }
    }

    fn begin(&mut self, cluster: Cluster, was: Option<Arc<Member>>) {
        let (work, stop, of) = (self.work.clone(), self.stop.clone(), cluster.clone());
        let tracker = &self.work.engine.core.tracker;
        // The controller waits for the task when it stops, and the cluster when it leaves.
        let task = cluster.spawn(tracker.track_future(async move {
            let run = stop.run_until_cancelled(work.run(&of, was));
            of.token().run_until_cancelled(run).await;
        }));
        self.begun.insert(cluster.name().clone(), task);
    }
}

/// Waits until an aborted clean-up has ended, and returns the cluster if that was the last one there. Cancel safe.
pub(super) async fn ended(clean_ups: &mut Option<CleanUps>) -> Option<ClusterName> {
    let clean_ups = clean_ups.as_mut()?;
    let name = clean_ups.ended.join_next().await?.ok()?;
    if let Some(count) = clean_ups.ending.get_mut(&name) {
        *count -= 1;
        if *count == 0 {
            clean_ups.ending.remove(&name);
        }
    }
    Some(name)
}

/// A clean-up that has not succeeded yet.
struct Pending<'a>(&'a AtomicUsize);

impl<'a> Pending<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    fn limit(&self) -> Duration {
        self.engine.core.plan.settings.timeout.unwrap_or(LIMIT)
    }

    /// Cleans up until that succeeds.
    async fn run(&self, cluster: &Cluster, was: Option<Arc<Member>>) {
        let _pending = Pending::new(&self.engine.core.pending_clean_ups);
        self.wait_for_calm(cluster, was.as_deref()).await;
        let controller = &self.engine.core.plan.settings.name;
        let display_name = || cluster.property(DISPLAY_NAME);
        let (mut failed, mut pause, mut warn_at) = (false, Duration::from_secs(1), Instant::now());
        loop {
            match self.attempt(cluster, failed).await {
                Some(Ok(())) if was.is_some() => {
                    tracing::info!(%controller, cluster = %cluster.name(), display_name = display_name(), "cleaned up in a cluster that is no longer selected");
                    return;
                }
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    failed = true;
                    if warn_at <= Instant::now() {
                        warn_at = Instant::now() + WARNS_EVERY;
                        tracing::warn!(%controller, cluster = %cluster.name(), display_name = display_name(), %error, retry_in = ?pause, "the clean-up of a cluster that is not selected failed; what the controller wrote may still be there. Further failures there are logged once an hour");
                    } else {
                        tracing::debug!(%controller, cluster = %cluster.name(), %error, retry_in = ?pause, "the clean-up of a cluster that is not selected failed again");
                    }
                    sleep(pause - jitter(pause / 2)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                None => sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Waits until the cluster has been Ready and not selected for some time, no reconcile is running there, and the selector is not
    /// suspected of a fault. Reconciles that are ending may still write; they are aborted after the grace period.
    async fn wait_for_calm(&self, cluster: &Cluster, was: Option<&Member>) {
        let grace = self.engine.fleet.drain_grace();
        let quiet = QUIET.max(grace.saturating_add(Duration::from_secs(1)));
        let is_away = || cluster.wait_for(|state| !state.is_ready());
        while cluster.wait_for(ClusterState::is_ready).await.is_ready()
            && timeout(quiet, is_away()).await.is_ok()
        {}
        let controller = &self.engine.core.plan.settings.name;
        while was.is_some_and(Member::has_tasks) || !self.brake.lock().releases(cluster.name(), controller) {
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits for its turn and cleans up. None if that is not to be done now, or was not done to its end.
    async fn attempt(&self, cluster: &Cluster, failed: bool) -> Option<Result<(), String>> {
        cluster.wait_for(ClusterState::is_ready).await;
        let term = match self.engine.core.needs() {
            Some(leadership) => Some(leadership.acquired().await),
            None => None,
        };
        let mut permit = Permit::acquire(&self.permits[usize::from(failed)]).await;
        if let Some(reason) = self.reason_to_wait(cluster) {
            let controller = &self.engine.core.plan.settings.name;
            tracing::debug!(%controller, cluster = %cluster.name(), reason, "the clean-up of a cluster that is not selected waits");
            return None;
        }
        let limit = self.limit();
        let call = async {
            let ended = (self.call)(cluster.clone(), self.engine.fleet.clone()).await;
            // The text of the error is code of users too.
            ended.map_err(|error| Failure::of(error.as_ref()).text)
        };
        let call = AssertUnwindSafe(in_term(term, || (), timeout(limit, call))).catch_unwind();
        Some(match permit.hold_at_most(HOLD, call).await {
            Ok(Err(_)) => return None,
            Ok(Ok(Ok(ended))) => ended,
            Ok(Ok(Err(_))) => Err(format!("it did not end within {} s", limit.as_secs_f32())),
            Err(panic) => Err(format!("it panicked: {}", panic_text(&*panic))),
        })
    }

    fn reason_to_wait(&self, cluster: &Cluster) -> Option<&'static str> {
        let (core, fleet) = (&self.engine.core, &self.engine.fleet);
        if !cluster.state().is_ready() {
            return Some("the cluster is not Ready");
        }
        if !fleet.is_discovered() {
            return Some(
                "a provider that has not announced its clusters may have the hub, or the cluster under another name",
            );
        }
        // It may be selected again before the follower has noticed.
        if !core.excludes(cluster) {
            return Some("the cluster may be selected");
        }
        if self.brake.lock().holds().is_some() {
            return Some("the controller selects too few clusters");
        }
        if !core.gating.is_open() {
            return Some("a gating watch has not listed");
        }
        // With a hint, there is a hub whose description can't be used.
        let has_hub = |none: ClusterNotFound| none.hint.is_some();
        if fleet.get(HUB).map_or_else(has_hub, |hub| !hub.state().is_ready()) {
            return Some("the hub is not Ready, and may be another name of the cluster");
        }
        let mut others = cluster.other_names().into_iter();
        let may_be_selected = |name: ClusterName| fleet.get(&name).is_ok_and(|other| !core.excludes(&other));
        others
            .any(may_be_selected)
            .then_some("the cluster may be selected under another name")
    }
}
