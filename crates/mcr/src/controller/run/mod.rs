//! Dispatches requests: runs the reconciler for each, in a task of its own.

pub(crate) mod leading;
pub(crate) mod outcome;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use mcr_core::DISPLAY_NAME;
use mcr_lease::LeaseGuard;
use tokio::{
    task::coop::consume_budget,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::{
    leading::Cut,
    outcome::{Ended, outcome},
};
use super::{
    engine::{Core, Engine, running::Job},
    member::Member,
};
use crate::{
    queue::Outcome,
    reconciler::{Completion, Invocation},
    request::RequestKey,
};

/// Dispatches until the queue is closed. Begins when all gating watches have listed, and dispatches only while this process
/// leads if the controller needs that. `stop` ends both waits.
pub(crate) async fn dispatch(engine: Arc<Engine>, stop: CancellationToken) {
    let gating = engine.core.gating.opened(&engine.core.plan.settings.name);
    if stop.run_until_cancelled(gating).await.is_none() {
        return;
    }
    engine.core.reopened();
    let mut term = None;
    while leading::wait(&engine.core, &stop, &mut term).await {
        let job = match leading::before_end(term.as_ref(), engine.core.queue.next()).await {
            None => continue,
            Some(None) => return,
            Some(Some(job)) => job,
        };
        // Another replica may lead since the queue was asked, also if this process was stopped for a while.
        if leading::is_over(term.as_ref()) {
            engine.core.queue.done(&job, leading::AGAIN);
            continue;
        }
        start(&engine, job, term.clone());
        // `next` of a queue with ready items never waits. The other tasks of this thread need their turn.
        consume_budget().await;
    }
}

/// How often the fleet learns for which clusters work waits or runs.
const REPORTS_WORK_EVERY: Duration = Duration::from_secs(2);

/// Lets the fleet probe clusters for which work waits or runs earlier than idle ones, until `stop` is cancelled.
pub(crate) async fn report_work(core: Arc<Core>, stop: CancellationToken) {
    while timeout(REPORTS_WORK_EVERY, stop.cancelled()).await.is_err() {
        if core.is_idle() {
            continue;
        }
        for member in core.queue.busy() {
            member.cluster.report_work();
        }
    }
}

fn start(engine: &Arc<Engine>, job: Job, term: Option<LeaseGuard>) {
    let (core, member) = (&engine.core, job.epoch.clone());
    core.counters.waits.observe(job.queued_for);
    let span = tracing::info_span!(
        "reconcile",
        controller = %core.plan.settings.name,
        cluster = %job.cluster,
        display_name = member.cluster.property(DISPLAY_NAME),
        namespace = job.key.namespace.as_deref().unwrap_or_default(),
        name = %job.key.name,
        attempt = job.attempt.saturating_add(1),
    );
    let key = RequestKey::new(job.cluster.clone(), job.key.clone());
    let attempt = job.attempt;
    let number = core.counters.runs.begin(Instant::now(), job);
    let spawned = member.spawn(&core.tracker, |task| {
        let run = RunGuard {
            engine: engine.clone(),
            member: member.clone(),
            number: Some(number),
            task,
        };
        reconcile(run, key, attempt, term).instrument(span)
    });
    if !spawned && let Some(job) = core.counters.runs.end(number) {
        core.queue.done(&job, Outcome::Drop);
    }
}

async fn reconcile(mut run: RunGuard, key: RequestKey, attempt: u32, term: Option<LeaseGuard>) {
    let Some(object) = run.member.find(&key.object) else {
        run.end(|_, _| Ended::with(Outcome::Drop));
        return;
    };
    let core = run.engine.core.clone();
    let token = run.member.token.child_token();
    let state = object.state();
    let call = Invocation {
        key,
        cluster: run.member.cluster.clone(),
        fleet: run.engine.fleet.clone(),
        object,
        attempt,
        token: token.clone(),
    };
    let began = Instant::now();
    let call = core.plan.reconciler.clone().run(call, &run.member.context);
    let call = leading::in_term(term, || token.cancel(), within(core.plan.settings.timeout, call));
    let ended = AssertUnwindSafe(call).catch_unwind().await;
    // Cancels the token of the request, for tasks that the reconciler left running.
    token.cancel();
    let ended = match ended {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(cut)) => {
            if cut == Cut::Aborted {
                core.counters.add(|counts| counts.aborted += 1);
                tracing::warn!(
                    "the reconcile did not end in time after this process lost the Lease; it is aborted"
                );
            }
            return run.end(|_, _| Ended::with(leading::AGAIN));
        }
        Err(panic) => Err(panic),
    };
    core.counters.durations.observe(began.elapsed());
    core.counters.add(|counts| counts.reconciles += 1);
    run.end(|run, job| outcome(&run.engine, job, state, ended));
}

/// Runs the call with a timeout, which is the error. Drops the call before it returns: the drop may panic, and must happen
/// before the queue may start the same key again.
async fn within(
    limit: Option<Duration>,
    call: BoxFuture<'static, Completion>,
) -> Result<Completion, Duration> {
    match limit {
        Some(limit) => timeout(limit, call).await.map_err(|_| limit),
        None => Ok(call.await),
    }
}

/// Reports the end of a run to the queue and the member, also after an abort.
struct RunGuard {
    engine: Arc<Engine>,
    member: Arc<Member>,
    /// The number of the run; `None` after its end was reported.
    number: Option<usize>,
    /// The number of its task in the member.
    task: u64,
}

impl RunGuard {
    fn end(&mut self, outcome: impl FnOnce(&Self, &Job) -> Ended) {
        let runs = &self.engine.core.counters.runs;
        if let Some(job) = self.number.take().and_then(|number| runs.end(number)) {
            self.member.task_ended(self.task);
            outcome(self, &job).report(&self.engine, &job);
        }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.end(|run, _| {
            run.engine.core.counters.add(|counts| counts.aborted += 1);
            Ended::with(Outcome::Drop)
        });
    }
}
