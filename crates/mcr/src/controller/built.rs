//! A controller that is ready to run.

use std::{fmt, sync::Arc, time::Duration};

use mcr_core::Fleet;
use mcr_lease::Leadership;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{Core, Engine},
    follow::{
        follow,
        source::{self, Sources},
    },
    run::{dispatch, report_work},
    status::ControllerHandle,
};
use crate::{error::ControllerError, failure::panic_text};

/// A controller that is ready to run. [`Controller::build`](super::Controller::build) makes it.
pub struct BuiltController {
    core: Arc<Core>,
    sources: Sources,
}

impl BuiltController {
    pub(crate) fn new(core: Core, sources: Sources) -> Self {
        let core = Arc::new(core);
        Self { core, sources }
    }

    /// The name of the controller.
    pub fn name(&self) -> &str {
        &self.core.plan.settings.name
    }

    /// A handle to read the state of the controller, also while it runs.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle(self.core.clone())
    }

    /// Lets the controller dispatch only while this process leads, unless it runs on every replica.
    pub(crate) fn set_leadership(&self, leadership: Leadership) {
        let _ = self.core.leadership.set(leadership);
    }

    /// Runs the controller on a fleet until `stop` is cancelled.
    ///
    /// The caller must [run](Fleet::run) the fleet too, and should stop it after its controllers: reconciles that are
    /// ending still need their clusters. After `stop`, the controller starts no reconcile and cancels the tokens of the
    /// running ones. It aborts reconciles and sources that have not ended within the
    /// [grace period](super::Controller::shutdown_grace).
    ///
    /// A program may start and stop controllers like this at any time, for kinds that it learns of while it runs. The example
    /// `published-kinds` of the repository has one for each row of a hub.
    ///
    /// ```no_run
    /// use mcr::{BuiltController, Fleet};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// # async fn example(controller: BuiltController, client: kube::Client) -> Result<(), mcr::ControllerError> {
    /// let (fleet, stop, stop_fleet) = (Fleet::single(client), CancellationToken::new(), CancellationToken::new());
    /// let running = tokio::spawn({
    ///     let (fleet, stop) = (fleet.clone(), stop_fleet.clone());
    ///     async move { fleet.run(stop).await }
    /// });
    /// controller.run(fleet, stop).await?;
    /// stop_fleet.cancel();
    /// let _ = running.await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ControllerError`] if a part of the controller itself panicked, which is a fault of this crate. Panics in
    /// reconcilers and in other functions that were given to the controller don't end it.
    ///
    /// # Cancellation
    /// Dropping the future stops the controller without a grace period: running reconciles are aborted.
    pub async fn run(self, fleet: Fleet, stop: CancellationToken) -> Result<(), ControllerError> {
        let grace = self.core.plan.settings.shutdown_grace;
        self.run_within(fleet, stop, grace).await
    }

    /// As [`run`](Self::run), with a grace period of at most `most`.
    pub(crate) async fn run_within(
        self,
        fleet: Fleet,
        stop: CancellationToken,
        most: Duration,
    ) -> Result<(), ControllerError> {
        let Self { core, sources } = self;
        let engine = Arc::new(Engine {
            core: core.clone(),
            fleet,
        });
        let (stop_following, stop_sources) = (CancellationToken::new(), CancellationToken::new());
        let _guards = (
            stop_following.clone().drop_guard(),
            stop_sources.clone().drop_guard(),
        );
        let mut tasks = JoinSet::new();
        let tokens = (stop_following.clone(), stop_sources.clone());
        tasks.spawn(follow(engine.clone(), sources.cluster, tokens));
        // Cancelled when the queue closes.
        tasks.spawn(dispatch(engine.clone(), stop_sources.clone()));
        tasks.spawn(report_work(core.clone(), stop_sources.clone()));
        let mut running_sources = JoinSet::new();
        for run in &sources.global {
            running_sources.spawn(source::run(engine.clone(), run.clone(), stop_sources.clone()));
        }
        let result = loop {
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                Some(_) = running_sources.join_next() => {}
                Some(ended) = tasks.join_next() => match ended {
                    Err(error) if error.is_panic() => {
                        let panic = panic_text(&*error.into_panic()).to_owned();
                        break Err(ControllerError::Panicked { controller: core.plan.settings.name.clone(), panic });
                    }
                    _ => {}
                },
            }
        };
        tracing::debug!(controller = %core.plan.settings.name, "controller stopping");
        core.queue.close();
        stop_sources.cancel();
        for (_, member) in core.queue.clusters() {
            member.close();
        }
        core.tracker.close();
        let grace = core.plan.settings.shutdown_grace.min(most);
        let ended = timeout(grace, async {
            core.tracker.wait().await;
            while running_sources.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            tracing::warn!(controller = %core.plan.settings.name, running = core.tracker.len(), "reconciles and sources did not end within the grace period of {} s; they are aborted", grace.as_secs_f32());
        }
        running_sources.shutdown().await;
        // The follower aborts the tasks of its members when it ends.
        stop_following.cancel();
        while tasks.join_next().await.is_some() {}
        // A task that never awaits survives its abort, and may never end.
        let _ = timeout(Duration::from_secs(1), core.tracker.wait()).await;
        result
    }
}

impl fmt::Debug for BuiltController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BuiltController").field(&self.name()).finish()
    }
}
