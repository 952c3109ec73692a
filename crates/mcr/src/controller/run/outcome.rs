//! The end of a reconcile: its outcome for the queue, and the list and log of failures.

use std::time::{Duration, SystemTime};

use mcr_core::DISPLAY_NAME;
use tokio::time::Instant;
use tracing::{Level, field::display};

use crate::{
    action::Action,
    controller::{
        engine::{Engine, running::Job},
        member::Member,
    },
    failure::{Failure, panic_text},
    queue::Outcome,
    reconciler::{Completion, ObjectState},
};

pub(crate) type Panic = Box<dyn std::any::Any + Send>;

/// How a reconcile ended.
pub(crate) struct Ended {
    outcome: Outcome,
    /// `None` if the reconcile succeeded or its request is dropped.
    failed: Option<Failure>,
}

/// Counts the end of a reconcile. `ended` has the timeout as its inner error.
pub(crate) fn outcome(
    engine: &Engine,
    job: &Job,
    state: ObjectState,
    ended: Result<Result<Completion, Duration>, Panic>,
) -> Ended {
    let member = &job.epoch;
    if !matches!(ended, Ok(Ok(Completion::Undecodable(..)))) {
        member.remove_undecodable(&job.key);
    }
    let ended = decide(engine, job, &state, ended);
    // A request that is dropped is done with its object, as one that succeeded.
    if let (ObjectState::Left(object), Outcome::Success { .. } | Outcome::Drop) = (&state, ended.outcome) {
        member.left_reconciled(&job.key, object);
    }
    ended
}

fn decide(
    engine: &Engine,
    job: &Job,
    state: &ObjectState,
    ended: Result<Result<Completion, Duration>, Panic>,
) -> Ended {
    let (core, member) = (&engine.core, &job.epoch);
    match ended {
        Ok(Ok(Completion::Succeeded(action))) => {
            core.counters.add(|counts| counts.successes += 1);
            Ended::with(success(state, action))
        }
        Ok(Ok(Completion::Failed(failure))) => match reason_to_drop(engine, member, &failure) {
            Some(reason) => {
                core.counters.add(|counts| counts.dropped += 1);
                tracing::debug!(error = %failure.text, "request dropped: {reason}");
                Ended::with(Outcome::Drop)
            }
            None if failure.terminal => {
                core.counters.add(|counts| counts.terminal += 1);
                Ended::failed(failure, Outcome::Drop)
            }
            None => {
                core.counters.add(|counts| counts.errors += 1);
                Ended::failed(failure, Outcome::Retry)
            }
        },
        Ok(Ok(Completion::FailedWithAction(failure, action))) => {
            let outcome = action.requeue_after().map_or(Outcome::Drop, Outcome::RetryAfter);
            if reason_to_drop(engine, member, &failure).is_some() {
                core.counters.add(|counts| counts.dropped += 1);
                Ended::with(outcome)
            } else {
                core.counters.add(|counts| counts.errors += 1);
                Ended::failed(failure, outcome)
            }
        }
        Ok(Ok(Completion::Undecodable(object, error))) => {
            core.counters.add(|counts| counts.dropped += 1);
            if member.add_undecodable(&job.key, object.resource_version()) {
                core.counters.add(|counts| counts.undecodable += 1);
                tracing::error!(%error, "the object can't be decoded; it is reconciled again when it changes");
            }
            Ended::with(Outcome::Drop)
        }
        Err(panic) => {
            core.counters.add(|counts| counts.panics += 1);
            let text = format!("the reconciler panicked: {}", panic_text(&*panic));
            let is_panic = true;
            let failure = Failure {
                is_panic,
                ..Failure::new(&text)
            };
            Ended::failed(failure, Outcome::Retry)
        }
        Ok(Err(limit)) => {
            core.counters.add(|counts| counts.timeouts += 1);
            let text = format!("the reconciler did not end within {} s", limit.as_secs_f32());
            Ended::failed(Failure::new(&text), Outcome::Retry)
        }
    }
}

impl Ended {
    /// The end of a reconcile that did not fail.
    pub(crate) fn with(outcome: Outcome) -> Self {
        Self {
            outcome,
            failed: None,
        }
    }

    fn failed(failure: Failure, outcome: Outcome) -> Self {
        Self {
            outcome,
            failed: Some(failure),
        }
    }

    /// Reports the end to the queue. Lists and logs a failure.
    pub(crate) fn report(self, engine: &Engine, job: &Job) {
        let (queue, member) = (&engine.core.queue, &job.epoch);
        let Some(failure) = &self.failed else {
            member.failing.remove(&job.key);
            queue.done(job, self.outcome);
            return;
        };
        let is_retried = self.outcome != Outcome::Drop;
        let attempt = job.attempt.saturating_add(1);
        let now = (Instant::now(), SystemTime::now());
        // Before `done`: from then on the request may run again, and a success must find its entry.
        let line = member.failing.add(&job.key, failure, attempt, is_retried, now);
        queue.done(job, self.outcome);
        let Some(repeated) = line else {
            return;
        };
        let mut elsewhere = 0;
        if failure.class.0 != 0 && !failure.terminal {
            let mut damping = engine.core.damping.lock();
            match damping.note(&failure.class, &job.cluster, now.0) {
                Some(others) => elsewhere = others,
                None => return,
            }
        }
        let due = queue.due(&job.cluster, &job.key);
        let millis = due.map(|due| due.saturating_duration_since(now.0).as_millis());
        let retry_in = millis.map(|millis| match u64::try_from(millis) {
            _ if !member.cluster.state().is_ready() => "until the cluster is Ready".to_owned(),
            // Something has asked for it during the reconcile.
            Ok(0) => "at once".to_owned(),
            millis => format!("{:?}", Duration::from_millis(millis.unwrap_or(u64::MAX))),
        });
        let retry_in = retry_in.map(display);
        let kind = engine.core.plan.primary_kind().map(display);
        macro_rules! log {
            ($level:expr, $text:expr) => {
                tracing::event!(
                    target: "mcr::reconcile",
                    $level,
                    error = %failure.text,
                    controller = %engine.core.plan.settings.name,
                    kind,
                    cluster = %job.cluster,
                    display_name = member.cluster.property(DISPLAY_NAME),
                    key = %job.key,
                    attempt,
                    retry_in,
                    repeated = (repeated > 0).then_some(repeated),
                    elsewhere = (elsewhere > 0).then_some(elsewhere),
                    "{}",
                    $text
                )
            };
        }
        let text = if failure.terminal {
            "reconcile failed with a terminal error; it is not retried until the object changes"
        } else if is_retried {
            "reconcile failed"
        } else {
            "reconcile failed; by its error policy it is not retried until the object changes"
        };
        if failure.terminal || failure.is_panic {
            log!(Level::ERROR, text);
        } else {
            log!(Level::WARN, text);
        }
    }
}

fn success(state: &ObjectState, action: Action) -> Outcome {
    // A reconciler may return a requeue every time. Objects that no longer exist must not be requeued for ever.
    let exists = matches!(state, ObjectState::Exists);
    Outcome::Success {
        requeue_after: action.requeue_after().filter(|_| exists),
    }
}

/// Why a failed request is not retried: its cluster is gone.
fn reason_to_drop(engine: &Engine, member: &Member, failure: &Failure) -> Option<&'static str> {
    let own = member.cluster.name();
    if member.token.is_cancelled() || engine.fleet.get(own).is_err() {
        return Some("its cluster has left");
    }
    (failure.cluster_not_found.as_deref() == Some(own.as_str())).then_some("its cluster was not found")
}
