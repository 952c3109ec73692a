//! Sources of requests: runs them, and restarts a source that fails.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use mcr_core::{BoxError, Cluster};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::engine::{
        Engine,
        enqueue::{ClusterEnqueue, Enqueue},
    },
    failure::{Failure, panic_text},
};

type SourceFuture = BoxFuture<'static, Result<(), BoxError>>;
pub(crate) type RunSource = Arc<dyn Fn(Enqueue, CancellationToken) -> SourceFuture + Send + Sync>;
pub(crate) type RunClusterSource =
    Arc<dyn Fn(Cluster, ClusterEnqueue, CancellationToken) -> SourceFuture + Send + Sync>;

/// The sources of a controller.
#[derive(Default)]
pub(crate) struct Sources {
    /// Run once.
    pub(crate) global: Vec<RunSource>,
    /// Run in each cluster.
    pub(crate) cluster: Vec<RunClusterSource>,
}

impl Sources {
    pub(crate) fn is_empty(&self) -> bool {
        self.global.is_empty() && self.cluster.is_empty()
    }
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs a source of the whole controller until it ends or `stop` is cancelled.
pub(crate) async fn run(engine: Arc<Engine>, source: RunSource, stop: CancellationToken) {
    let name = engine.core.plan.settings.name.clone();
    let make = || source(Enqueue(engine.clone()), stop.clone());
    supervise(&name, "", make, &stop).await;
}

/// Spawns a source of one cluster as a task of its member.
pub(crate) fn spawn_in_cluster(enqueue: ClusterEnqueue, source: RunClusterSource) {
    let member = enqueue.member.clone();
    let core = enqueue.engine.core.clone();
    member.clone().spawn(&core.clone().tracker, move |id| async move {
        let guard = TaskGuard {
            enqueue: enqueue.clone(),
            id,
        };
        let token = CancellationToken::clone(&enqueue.member.token);
        let cluster = enqueue.cluster().clone();
        let make = || source(cluster.clone(), enqueue.clone(), token.clone());
        supervise(&core.plan.settings.name, cluster.name(), make, &token).await;
        drop(guard);
    });
}

/// Reports the end of a task to its member, also after an abort.
struct TaskGuard {
    enqueue: ClusterEnqueue,
    id: u64,
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.enqueue.member.task_ended(self.id);
    }
}

async fn supervise(
    controller: &str,
    cluster: &str,
    make: impl Fn() -> SourceFuture,
    stop: &CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        // The function may panic, and so may the future that it returns and the text of its error.
        let run = async { make().await.map_err(|error| Failure::of(error.as_ref()).text) };
        let ended = AssertUnwindSafe(run).catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        let error = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        tracing::warn!(controller, cluster, %error, retry_in = ?pause, "a source failed; it is started again after a pause");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
