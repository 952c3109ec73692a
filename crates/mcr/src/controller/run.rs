//! One reconcile, from being taken from the queue to its end.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use mcr_core::{ClusterName, ObjectKey};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use super::{
    engine::Engine,
    judge::{Panic, judge},
    member::Member,
    status::count,
};
use crate::{
    RequestKey,
    queue::{Outcome, Work},
    reconciler::{Ended, Invocation, Standing},
    request::Ending,
};

pub(crate) type Job = Work<ClusterName, ObjectKey>;

/// What comes of a run, for the queue.
pub(super) struct Over {
    pub(super) work: Job,
    pub(super) outcome: Outcome,
    pub(super) at: Instant,
}

/// A reconcile that has begun.
pub(super) struct Run {
    begun: Begun,
    span: Span,
}

impl Run {
    /// Begins the work. Nothing of the reconciler has run when this returns. An error if there is nothing to do, because the
    /// cluster is no longer the one the work was for.
    pub(super) fn begin(engine: &Arc<Engine>, work: Job, now: Instant) -> Result<Self, Job> {
        let core = &engine.core;
        let member = core
            .members()
            .get(&work.cluster)
            .filter(|member| member.epoch == work.epoch)
            .cloned();
        let Some(member) = member else {
            return Err(work);
        };
        let Some(found) = member.find(&work.key) else {
            return Err(work);
        };
        if !member.begin() {
            return Err(work);
        }
        core.counters.waits.observe(work.queued_for);
        let span = tracing::info_span!(
            "reconcile",
            controller = %core.plan.name,
            cluster = %work.cluster,
            namespace = work.key.namespace.as_deref().unwrap_or_default(),
            name = %work.key.name,
            attempt = work.attempt,
        );
        let ending = Ending::new(member.token.clone());
        let standing = found.standing();
        let call = Invocation {
            key: RequestKey::new(work.cluster.clone(), work.key.clone()),
            cluster: member.cluster.clone(),
            fleet: engine.fleet.clone(),
            object: found,
            attempt: work.attempt,
            ending: ending.clone(),
        };
        let number = core.counters.runs.begin(now, work);
        let guard = RunGuard {
            engine: engine.clone(),
            member,
            number: Some(number),
            task: None,
        };
        let call = Call {
            future: core.plan.runner.clone().run(call, &guard.member.local),
            standing,
            ending,
            began: now,
        };
        Ok(Self {
            begun: Begun { call, guard },
            span,
        })
    }

    /// Polls the reconcile once, on this thread. If it waits for something, it goes on in a task of its own. What comes of
    /// it if it does not.
    pub(super) fn here(self) -> Option<Over> {
        let Self { mut begun, span } = self;
        span.in_scope(|| {
            // The task polls it again, with a waker that counts, before it waits.
            let mut context = Context::from_waker(Waker::noop());
            let future = begun.call.future.as_mut();
            match catch_unwind(AssertUnwindSafe(|| future.poll(&mut context))) {
                Ok(Poll::Ready(ended)) => begun.end(Ok(Ok(ended))),
                Err(panic) => begun.end(Ok(Err(panic))),
                Ok(Poll::Pending) => {
                    begun.go_on(span.clone());
                    None
                }
            }
        })
    }

    /// Gives the reconcile a task of its own.
    pub(super) fn in_task(self) {
        self.begun.go_on(self.span);
    }
}

/// The reconciler's future, and what is needed to judge how it ended.
struct Call {
    future: BoxFuture<'static, Ended>,
    standing: Standing,
    ending: Ending,
    began: Instant,
}

impl Call {
    async fn ended(&mut self, limit: Option<Duration>) -> Result<Result<Ended, Panic>, Duration> {
        let run = AssertUnwindSafe(&mut self.future).catch_unwind();
        // Where it began to count, the first poll may have been long over.
        let until = limit.and_then(|limit| Some((limit, self.began.checked_add(limit)?)));
        match until {
            Some((limit, until)) => timeout_at(until, run).await.map_err(|_| limit),
            None => Ok(run.await),
        }
    }
}

/// The call comes first: nothing of it may be left when the queue is told that the run is over.
struct Begun {
    call: Call,
    guard: RunGuard,
}

// Methods on the whole of it: a closure that sets a field of its own accord would capture that field only.
impl Begun {
    fn spawned(mut self, task: u64) -> Self {
        self.guard.task = Some(task);
        self
    }

    /// Lets it go on in a task. If it is aborted already, it ends here.
    fn go_on(self, span: Span) {
        let (engine, member) = (self.guard.engine.clone(), self.guard.member.clone());
        member.go_on(&engine.core.tracker, move |task| {
            let mut begun = self.spawned(task);
            async move {
                let core = begun.guard.engine.core.clone();
                let ended = begun.call.ended(core.plan.timeout).await;
                if let Some(over) = begun.end(ended) {
                    core.queue.done(&over.work, over.outcome);
                }
            }
            .instrument(span)
        });
    }

    fn end(self, ended: Result<Result<Ended, Panic>, Duration>) -> Option<Over> {
        let Self { call, mut guard } = self;
        // Whatever the reconciler left running that listens to its token ends with it, also if it panics when it is dropped.
        call.ending.end();
        drop(call.future);
        let counters = &guard.engine.core.counters;
        let at = Instant::now();
        counters.durations.observe(at - call.began);
        count(&counters.reconciles);
        let work = guard.over()?;
        let outcome = judge(&guard.engine, &guard.member, &work, call.standing, ended);
        Some(Over { work, outcome, at })
    }
}

/// Tells the queue and the member that a run is over, however it ended: returned, panicked, or aborted.
struct RunGuard {
    engine: Arc<Engine>,
    member: Arc<Member>,
    /// Its number among all that run; none when its end has been told.
    number: Option<usize>,
    /// The number of its task; none before it has one.
    task: Option<u64>,
}

impl RunGuard {
    /// The work, the first time.
    fn over(&mut self) -> Option<Job> {
        let work = self.engine.core.counters.runs.end(self.number.take()?);
        self.member.ended(self.task);
        work
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        if let Some(work) = self.over() {
            count(&self.engine.core.counters.aborted);
            self.engine.core.queue.done(&work, Outcome::Drop);
        }
    }
}
