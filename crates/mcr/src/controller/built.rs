//! A controller that is ready to run.

use std::{fmt, sync::Arc, time::Duration};

use mcr_core::Fleet;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ControllerHandle,
    engine::{Core, Engine},
    follow::follow,
    run::dispatch,
    source,
};
use crate::{ControllerError, failure::panic_text};

/// A controller that is ready to run; made by [`Controller::build`](super::Controller::build).
pub struct BuiltController {
    core: Arc<Core>,
}

impl BuiltController {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.plan.name
    }

    /// Shows what it does, also while it runs.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle(self.core.clone())
    }

    /// Runs the controller on a fleet until `stop` is cancelled.
    ///
    /// The fleet has to [run](Fleet::run) as well, and should be stopped after its controllers: reconciles that
    /// are ending still need their clusters. After `stop` nothing new is begun, the tokens of running requests
    /// are cancelled, and what has not ended within the
    /// [grace period](super::Controller::shutdown_grace) is aborted.
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
    /// [`ControllerError`] if a part of the controller itself panicked, which is a fault of this crate. Panics of
    /// reconcilers and of other functions given to the controller don't end it.
    ///
    /// # Cancellation
    /// Dropping the future stops the controller without any grace: running reconciles are aborted.
    pub async fn run(self, fleet: Fleet, stop: CancellationToken) -> Result<(), ControllerError> {
        let grace = self.core.plan.shutdown_grace;
        self.run_within(fleet, stop, grace).await
    }

    /// Runs with at most this grace period.
    pub(crate) async fn run_within(
        self,
        fleet: Fleet,
        stop: CancellationToken,
        most: Duration,
    ) -> Result<(), ControllerError> {
        let core = self.core;
        let engine = Arc::new(Engine {
            core: core.clone(),
            fleet,
        });
        let (following, working) = (CancellationToken::new(), CancellationToken::new());
        let _ends = (following.clone().drop_guard(), working.clone().drop_guard());
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(engine.clone(), following.clone()));
        tasks.spawn(dispatch(engine.clone()));
        let mut sources = JoinSet::new();
        for run in &core.plan.sources {
            sources.spawn(source::run(engine.clone(), run.clone(), working.clone()));
        }
        let result = loop {
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                Some(_) = sources.join_next() => {}
                Some(ended) = tasks.join_next() => match ended {
                    Err(error) if error.is_panic() => {
                        let panic = panic_text(&*error.into_panic()).to_owned();
                        break Err(ControllerError::Panicked { controller: core.plan.name.clone(), panic });
                    }
                    _ => {}
                },
            }
        };
        tracing::debug!(controller = %core.plan.name, "controller stops");
        core.queue.close();
        working.cancel();
        let members: Vec<_> = core.members().values().cloned().collect();
        for member in members {
            member.close();
        }
        core.tracker.close();
        let grace = core.plan.shutdown_grace.min(most);
        let ended = timeout(grace, async {
            core.tracker.wait().await;
            while sources.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            tracing::warn!(controller = %core.plan.name, running = core.tracker.len(), "work did not end within {} s; it is aborted", grace.as_secs_f32());
        }
        sources.shutdown().await;
        // The follower ends what is left when it ends.
        following.cancel();
        while tasks.join_next().await.is_some() {}
        // Only what never awaits survives an abort, and nobody can wait for that.
        let _ = timeout(Duration::from_secs(1), core.tracker.wait()).await;
        result
    }
}

impl fmt::Debug for BuiltController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BuiltController").field(&self.name()).finish()
    }
}
