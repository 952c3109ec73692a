//! Runs raw sources, again and again where they fail.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{
    ClusterEnqueue, Enqueue,
    engine::Engine,
    plan::{RunClusterSource, RunSource, SourceFuture},
};
use crate::failure::{Failure, panic_text};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs a source of the whole controller until it ends or is told to stop.
pub(crate) async fn run(engine: Arc<Engine>, source: RunSource, stop: CancellationToken) {
    let name = engine.core.plan.name.clone();
    let make = || source(Enqueue(engine.clone()), stop.clone());
    supervise(&name, "", make, &stop).await;
}

/// Runs a source of one cluster as part of that cluster.
pub(crate) fn spawn_in_cluster(enqueue: ClusterEnqueue, source: RunClusterSource) {
    let member = enqueue.member.clone();
    let core = enqueue.engine.core.clone();
    member.clone().spawn(&core.clone().tracker, move |id| async move {
        let ended = Ended {
            enqueue: enqueue.clone(),
            id,
        };
        let token = CancellationToken::clone(&enqueue.member.token);
        let cluster = enqueue.cluster().clone();
        let make = || source(cluster.clone(), enqueue.clone(), token.clone());
        supervise(&core.plan.name, cluster.name(), make, &token).await;
        drop(ended);
    });
}

/// Says that a task has ended, also when it was aborted.
struct Ended {
    enqueue: ClusterEnqueue,
    id: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.enqueue.member.ended(self.id);
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
        // The function itself may panic as well as what it returns.
        let ended = AssertUnwindSafe(async { make().await }).catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        let error = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Failure::of(error.as_ref()).text,
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        tracing::warn!(controller, cluster, %error, retry_in = ?pause, "a source failed, starting it again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
