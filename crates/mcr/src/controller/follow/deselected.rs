//! Cleans up in the clusters that the controller does not select.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use mcr_core::{Cluster, ClusterName, ClusterState, DISPLAY_NAME, internal::jitter};
use tokio::{
    sync::Semaphore,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::{
        engine::{Engine, plan::CleanUp},
        member::Member,
        run::leading::in_term,
    },
    failure::{Failure, panic_text},
};

/// How many clusters are cleaned up at once.
const AT_ONCE: usize = 16;
/// How long a cluster that was not selected before is left alone: its labels may be about to change.
const QUIET: Duration = Duration::from_secs(10);
/// The time limit in a controller without one.
const LIMIT: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The clusters that the selector of the controller excludes. Each is cleaned up once.
pub(super) struct CleanUps {
    work: Arc<Work>,
    stop: CancellationToken,
    /// Also those that have been cleaned up.
    begun: HashMap<ClusterName, Begun>,
}

struct Begun {
    /// Whether the controller has selected the cluster before, so that its properties have come.
    has_left: bool,
    task: AbortHandle,
}

struct Work {
    engine: Arc<Engine>,
    call: CleanUp,
    permits: Semaphore,
}

impl CleanUps {
    /// None if the controller does not clean up.
    pub(super) fn new(engine: &Arc<Engine>, stop: CancellationToken) -> Option<Self> {
        let work = Work {
            engine: engine.clone(),
            call: engine.core.plan.settings.on_deselected.clone()?,
            permits: Semaphore::new(AT_ONCE),
        };
        Some(Self {
            work: Arc::new(work),
            stop,
            begun: HashMap::new(),
        })
    }

    /// Follows a cluster that may have changed. `was`: its membership, if the controller selected it until now.
    pub(super) fn update(&mut self, cluster: &Cluster, was: Option<Arc<Member>>) {
        let begun = self.begun.get(cluster.name());
        let has_left = begun.map_or(was.is_some(), |begun| begun.has_left);
        match (
            begun.is_some(),
            self.work.engine.core.excludes(cluster, !has_left),
        ) {
            (true, false) => self.end(cluster.name()),
            (false, true) => self.begin(cluster.clone(), has_left, was),
            _ => {}
        }
    }

    /// The cluster has left, or may be selected.
    pub(super) fn end(&mut self, name: &ClusterName) {
        if let Some(begun) = self.begun.remove(name) {
            begun.task.abort();
        }
    }

    fn begin(&mut self, cluster: Cluster, has_left: bool, was: Option<Arc<Member>>) {
        let (work, stop, of) = (self.work.clone(), self.stop.clone(), cluster.clone());
        let tracker = &self.work.engine.core.tracker;
        // The controller waits for the task when it stops, and the cluster when it leaves.
        let task = cluster.spawn(tracker.track_future(async move {
            let run = stop.run_until_cancelled(work.run(&of, has_left, was));
            of.token().run_until_cancelled(run).await;
        }));
        let task = task.abort_handle();
        self.begun
            .insert(cluster.name().clone(), Begun { has_left, task });
    }
}

impl Work {
    /// Cleans up until that succeeds.
    async fn run(&self, cluster: &Cluster, has_left: bool, was: Option<Arc<Member>>) {
        // Reconciles that are ending may still write. They are aborted after the grace period.
        let limit = Instant::now() + self.engine.fleet.drain_grace() + Duration::from_secs(1);
        sleep(if has_left { Duration::ZERO } else { QUIET }).await;
        while was.as_ref().is_some_and(|was| was.has_tasks()) && Instant::now() < limit {
            sleep(Duration::from_millis(50)).await;
        }
        let (controller, mut pause) = (&self.engine.core.plan.settings.name, Duration::from_secs(1));
        loop {
            match self.attempt(cluster, has_left).await {
                Some(Ok(())) if has_left => {
                    tracing::info!(%controller, cluster = %cluster.name(), display_name = cluster.property(DISPLAY_NAME), "cleaned up in a cluster that is no longer selected");
                    return;
                }
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::warn!(%controller, cluster = %cluster.name(), display_name = cluster.property(DISPLAY_NAME), %error, retry_in = ?pause, "the clean-up of a cluster that is not selected failed; what the controller wrote may still be there");
                    sleep(pause - jitter(pause / 2)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // It may be excluded again before the follower has noticed, or another replica leads.
                None => sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Waits for its turn and cleans up. None if that was not to be done any more, or not to its end.
    async fn attempt(&self, cluster: &Cluster, has_left: bool) -> Option<Result<(), String>> {
        cluster.wait_for(ClusterState::is_ready).await;
        let core = &self.engine.core;
        let term = match core.needs() {
            Some(leadership) => Some(leadership.acquired().await),
            None => None,
        };
        let _permit = self.permits.acquire().await.ok()?;
        if !cluster.state().is_ready() || !core.excludes(cluster, !has_left) {
            return None;
        }
        let limit = core.plan.settings.timeout.unwrap_or(LIMIT);
        let call = async { (self.call)(cluster.clone(), self.engine.fleet.clone()).await };
        let call = in_term(term, || (), timeout(limit, call));
        Some(match AssertUnwindSafe(call).catch_unwind().await {
            Ok(Err(_)) => return None,
            Ok(Ok(Ok(ended))) => ended.map_err(|error| Failure::of(error.as_ref()).text),
            Ok(Ok(Err(_))) => Err(format!("it did not end within {} s", limit.as_secs_f32())),
            Err(panic) => Err(format!("it panicked: {}", panic_text(&*panic))),
        })
    }
}
