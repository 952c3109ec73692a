//! Runs the reconciler on what the queue lets through, each time in a task of its own.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use mcr_core::{ClusterName, ObjectKey};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, timeout},
};
use tracing::Instrument;

use super::{engine::Engine, judge::judge, member::Member, status::count};
use crate::{
    RequestKey,
    queue::{Outcome, Work},
    reconciler::{Ended, Invocation},
    request::Ending,
};

pub(crate) type Job = Work<ClusterName, ObjectKey>;

/// Dispatches until the queue is closed.
pub(crate) async fn dispatch(engine: Arc<Engine>) {
    while let Some(work) = engine.core.queue.next().await {
        start(&engine, work);
        // A queue that has work makes nobody wait: other tasks of this thread are to have their turn all the same.
        consume_budget().await;
    }
}

fn start(engine: &Arc<Engine>, work: Job) {
    let core = &engine.core;
    let member = core
        .members()
        .get(&work.cluster)
        .filter(|member| member.epoch == work.epoch)
        .cloned();
    let Some(member) = member else {
        core.queue.done(&work, Outcome::Drop);
        return;
    };
    core.counters.waits.observe(work.queued_for);
    let span = tracing::info_span!(
        "reconcile",
        controller = %core.plan.name,
        cluster = %work.cluster,
        namespace = work.key.namespace.as_deref().unwrap_or_default(),
        name = %work.key.name,
        attempt = work.attempt,
    );
    let key = RequestKey::new(work.cluster.clone(), work.key.clone());
    let attempt = work.attempt;
    let number = core.counters.runs.begin(Instant::now(), work);
    let spawned = member.spawn(&core.tracker, |task| {
        let run = Run {
            engine: engine.clone(),
            member: member.clone(),
            number: Some(number),
            task,
        };
        reconcile(run, key, attempt).instrument(span)
    });
    if !spawned && let Some(work) = core.counters.runs.end(number) {
        core.queue.done(&work, Outcome::Drop);
    }
}

async fn reconcile(mut run: Run, key: RequestKey, attempt: u32) {
    let Some(object) = run.member.find(&key.object) else {
        run.over(|_, _| Outcome::Drop);
        return;
    };
    let core = run.engine.core.clone();
    let ending = Ending::new(run.member.token.clone());
    let standing = object.standing();
    let call = Invocation {
        key,
        cluster: run.member.cluster.clone(),
        fleet: run.engine.fleet.clone(),
        object,
        attempt,
        ending: ending.clone(),
    };
    let began = Instant::now();
    let call = core.plan.runner.clone().run(call, &run.member.local);
    let ended = AssertUnwindSafe(within(core.plan.timeout, call))
        .catch_unwind()
        .await;
    // Whatever the reconciler left running that listens to its token ends with it.
    ending.end();
    core.counters.durations.observe(began.elapsed());
    count(&core.counters.reconciles);
    run.over(|run, work| judge(&run.engine, &run.member, work, standing, ended));
}

/// Drops the call before it returns: that may panic as well, and nothing of it may be left when the queue is told.
async fn within(limit: Option<Duration>, call: BoxFuture<'static, Ended>) -> Result<Ended, Duration> {
    match limit {
        Some(limit) => timeout(limit, call).await.map_err(|_| limit),
        None => Ok(call.await),
    }
}

/// Tells the queue and the member that a run is over, however it ended: returned, panicked, or aborted.
struct Run {
    engine: Arc<Engine>,
    member: Arc<Member>,
    /// Its number among all that run; none when its end has been told.
    number: Option<usize>,
    /// The number of its task.
    task: u64,
}

impl Run {
    fn over(&mut self, outcome: impl FnOnce(&Self, &Job) -> Outcome) {
        let runs = &self.engine.core.counters.runs;
        if let Some(work) = self.number.take().and_then(|number| runs.end(number)) {
            self.member.ended(self.task);
            let outcome = outcome(self, &work);
            self.engine.core.queue.done(&work, outcome);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.over(|run, _| {
            count(&run.engine.core.counters.aborted);
            Outcome::Drop
        });
    }
}
