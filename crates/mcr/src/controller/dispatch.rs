//! Takes requests from the queue and runs the reconciler on each.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use mcr_core::{ClusterName, ObjectKey};
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    engine::{Core, Engine},
    member::Member,
    status::count,
};
use crate::{
    Action, RequestKey,
    failure::{Failure, panic_text},
    queue::{Outcome, Work},
    reconciler::{Ended, Found, Invocation},
};

type Job = Work<ClusterName, ObjectKey>;

/// Dispatches until the queue is closed.
pub(crate) async fn dispatch(engine: Arc<Engine>) {
    while let Some(work) = engine.core.queue.next().await {
        start(&engine, work);
    }
}

fn start(engine: &Arc<Engine>, work: Job) {
    let member = engine
        .core
        .members()
        .get(&work.cluster)
        .filter(|member| member.epoch == work.epoch)
        .cloned();
    let Some(member) = member else {
        engine.core.queue.done(&work, Outcome::Drop);
        return;
    };
    let span = tracing::info_span!(
        "reconcile",
        controller = %engine.core.plan.name,
        cluster = %work.cluster,
        namespace = work.key.namespace.as_deref().unwrap_or_default(),
        name = %work.key.name,
        attempt = work.attempt,
    );
    let (engine, spawner) = (engine.clone(), member.clone());
    let core = engine.core.clone();
    core.counters.waits.observe(work.queued_for);
    let run = core
        .counters
        .runs
        .begin(RequestKey::new(work.cluster.clone(), work.key.clone()));
    // If the task is not started, the guard in it ends the run all the same.
    let guard = RunGuard {
        core: core.clone(),
        member,
        work,
        run,
        id: None,
        outcome: None,
    };
    spawner.spawn(&core.tracker, move |id| {
        let guard = guard.spawned(id);
        async move {
            let outcome = reconcile(&engine, &guard.member, &guard.work).await;
            guard.finish(outcome);
        }
        .instrument(span)
    });
}

/// Tells the queue that a run is over, however it ended: returned, panicked, or aborted.
struct RunGuard {
    core: Arc<Core>,
    member: Arc<Member>,
    work: Job,
    /// Its number among all that run.
    run: u64,
    /// None before the task is spawned.
    id: Option<u64>,
    outcome: Option<Outcome>,
}

// Methods on the whole guard: a closure that sets a field of its own accord would capture a copy of that field.
impl RunGuard {
    fn spawned(mut self, id: u64) -> Self {
        self.id = Some(id);
        self
    }

    fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.core.counters.runs.end(self.run);
        if let Some(id) = self.id {
            self.member.ended(id);
            if self.outcome.is_none() {
                count(&self.core.counters.aborted);
            }
        }
        self.core
            .queue
            .done(&self.work, self.outcome.unwrap_or(Outcome::Drop));
    }
}

async fn reconcile(engine: &Arc<Engine>, member: &Member, work: &Job) -> Outcome {
    let core = &engine.core;
    let Some(found) = member.find(&work.key) else {
        return Outcome::Drop;
    };
    let call = Invocation {
        key: RequestKey::new(work.cluster.clone(), work.key.clone()),
        cluster: member.cluster.clone(),
        fleet: engine.fleet.clone(),
        object: found.clone(),
        attempt: work.attempt,
        token: member.token.child_token(),
        local: member.local.clone(),
    };
    let token = call.token.clone();
    let began = Instant::now();
    let run = AssertUnwindSafe(core.plan.runner.clone().run(call)).catch_unwind();
    let ended = match core.plan.timeout {
        Some(limit) => tokio::time::timeout(limit, run).await.map_err(|_| limit),
        None => Ok(run.await),
    };
    // Whatever the reconciler left running that listens to its token ends with it.
    token.cancel();
    core.counters.durations.observe(began.elapsed());
    count(&core.counters.reconciles);
    judge(engine, member, work, &found, ended)
}

type Panic = Box<dyn std::any::Any + Send>;

fn judge(
    engine: &Engine,
    member: &Member,
    work: &Job,
    found: &Found,
    ended: Result<Result<Ended, Panic>, Duration>,
) -> Outcome {
    let core = &engine.core;
    if !matches!(ended, Ok(Ok(Ended::Undecodable(_)))) {
        member.decoded(&work.key);
    }
    match ended {
        Ok(Ok(Ended::Done(action))) => {
            if let Found::Deleted(object) = found {
                member.buried(&work.key, object);
            }
            count(&core.counters.successes);
            success(found, action)
        }
        Ok(Ok(Ended::Failed(failure))) => match excuse(engine, member, &failure) {
            Some(why) => {
                count(&core.counters.dropped);
                tracing::debug!(error = %failure.text, "request ends: {why}");
                Outcome::Drop
            }
            None => {
                count(&core.counters.errors);
                tracing::warn!(error = %failure.text, "reconcile failed");
                Outcome::Retry
            }
        },
        Ok(Ok(Ended::Decided(failure, action))) => {
            if excuse(engine, member, &failure).is_some() {
                count(&core.counters.dropped);
            } else {
                count(&core.counters.errors);
                tracing::warn!(error = %failure.text, requeue_after = ?action.requeue_after(), "reconcile failed");
            }
            action.requeue_after().map_or(Outcome::Drop, Outcome::RetryAfter)
        }
        Ok(Ok(Ended::Undecodable(error))) => {
            count(&core.counters.dropped);
            if let Found::Live(object) = found
                && member.is_news(&work.key, object.resource_version())
            {
                count(&core.counters.undecodable);
                tracing::error!(%error, "the object is not reconciled before it changes");
            }
            Outcome::Drop
        }
        Ok(Err(panic)) => {
            count(&core.counters.panics);
            tracing::error!(panic = panic_text(&*panic), "the reconciler panicked");
            Outcome::Retry
        }
        Err(limit) => {
            count(&core.counters.timeouts);
            tracing::warn!("the reconciler did not end within {} s", limit.as_secs_f32());
            Outcome::Retry
        }
    }
}

fn success(found: &Found, action: Action) -> Outcome {
    // A reconciler that plans the next look at every end must not look at objects that are gone for ever.
    let exists = matches!(found, Found::Live(_) | Found::Unwatched);
    Outcome::Success {
        requeue_after: action.requeue_after().filter(|_| exists),
    }
}

/// Why a failure is none: there is nothing left to reconcile.
fn excuse(engine: &Engine, member: &Member, failure: &Failure) -> Option<&'static str> {
    let own = member.cluster.name();
    if member.token.is_cancelled() || engine.fleet.get(own).is_err() {
        return Some("its cluster has left");
    }
    (failure.cluster_not_found.as_deref() == Some(own.as_str())).then_some("its cluster was not found")
}
