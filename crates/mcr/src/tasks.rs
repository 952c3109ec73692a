//! The tasks of a manager.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use mcr_core::{BoxError, Fleet};
use mcr_lease::Leadership;
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{controller::run::leading::in_term, error::ManagerError, failure::panic_text};

pub(crate) type Task =
    Box<dyn FnOnce(Fleet, CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>;

/// Runs a task in each term of this process, until `stop` is cancelled.
pub(crate) async fn lead<Fut: Future<Output = Result<(), BoxError>>>(
    name: &str,
    task: impl Fn(Fleet, CancellationToken) -> Fut,
    fleet: Fleet,
    stop: CancellationToken,
    leadership: Option<Leadership>,
) -> Result<(), BoxError> {
    let Some(leadership) = leadership else {
        return task(fleet, stop).await;
    };
    while let Some(term) = stop.run_until_cancelled(leadership.acquired()).await {
        let token = stop.child_token();
        // Called in the term: an `async fn` may do something before its first await.
        let run = async { task(fleet.clone(), token.clone()).await };
        let ended = in_term(Some(term.clone()), || token.cancel(), run).await;
        token.cancel();
        match ended {
            Ok(Err(error)) if term.is_held() => return Err(error),
            Ok(Err(error)) => {
                tracing::warn!(task = name, %error, "a leader task failed after the end of its term")
            }
            Err(cut) => tracing::warn!(
                task = name,
                ?cut,
                "a leader task did not end in time after this process lost the Lease"
            ),
            Ok(Ok(())) => {}
        }
        stop.run_until_cancelled(term.lost()).await;
    }
    Ok(())
}

pub(crate) fn panicked(task: &str, error: JoinError) -> ManagerError {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic_text(&*panic).to_owned(),
        Err(error) => error.to_string(),
    };
    ManagerError::TaskPanicked {
        task: task.into(),
        panic,
    }
}

/// The running controllers and tasks, with their names.
#[derive(Default)]
pub(crate) struct NamedTasks {
    tasks: JoinSet<Result<(), ManagerError>>,
    names: Vec<(Id, Arc<str>)>,
}

impl NamedTasks {
    pub(crate) fn spawn(
        &mut self,
        name: Arc<str>,
        task: impl Future<Output = Result<(), ManagerError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.names.push((id, name));
    }

    fn result(
        &mut self,
        ended: Result<(Id, Result<(), ManagerError>), JoinError>,
    ) -> Result<(), ManagerError> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let at = self.names.iter().position(|(known, _)| *known == id);
        let task = at.map_or_else(|| "".into(), |at| self.names.swap_remove(at).1);
        match ended {
            Ok((_, result)) => result,
            Err(error) if error.is_panic() => Err(panicked(&task, error)),
            Err(_) => Ok(()),
        }
    }

    /// Waits for the first failure, for ever if there is none.
    pub(crate) async fn first_failure(&mut self) -> ManagerError {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Err(error) = self.result(ended) {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Waits until all tasks have ended. Returns the first failure.
    pub(crate) async fn all(&mut self) -> Result<(), ManagerError> {
        let mut first = Ok(());
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let result = self.result(ended);
            first = first.and(result);
        }
        first
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(|(_, name)| &**name).collect();
        names.join(", ")
    }

    pub(crate) fn stuck(&self, grace: Duration) -> ManagerError {
        let what = self.names();
        ManagerError::Stuck { what, grace }
    }

    /// Aborts what has not ended. Returns whether all tasks have ended: one that never awaits survives its abort.
    pub(crate) async fn abort(&mut self) -> bool {
        let ended = timeout(Duration::from_secs(1), self.tasks.shutdown())
            .await
            .is_ok();
        if !ended {
            tracing::error!(
                tasks = self.names(),
                "tasks never await, so they can't be aborted and may keep the process from ending: let them await, or run code that blocks with spawn_blocking"
            );
        }
        ended
    }
}
