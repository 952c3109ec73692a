//! The outcome of a reconcile for the queue.

use std::time::Duration;

use super::{counters::count, engine::Engine, member::Member, runs::Job};
use crate::{
    Action,
    failure::{Failure, panic_text},
    queue::Outcome,
    reconciler::{Completion, ObjectState},
};

pub(super) type Panic = Box<dyn std::any::Any + Send>;

/// Counts and logs the end of a reconcile, and returns its outcome. `ended` has the timeout as its inner error.
pub(super) fn outcome(
    engine: &Engine,
    member: &Member,
    job: &Job,
    state: ObjectState,
    ended: Result<Result<Completion, Duration>, Panic>,
) -> Outcome {
    let core = &engine.core;
    if !matches!(ended, Ok(Ok(Completion::Undecodable(..)))) {
        member.remove_undecodable(&job.key);
    }
    match ended {
        Ok(Ok(Completion::Succeeded(action))) => {
            if let ObjectState::Left(object) = &state {
                member.left_reconciled(&job.key, object);
            }
            count(&core.counters.successes);
            success(&state, action)
        }
        Ok(Ok(Completion::Failed(failure))) => match reason_to_drop(engine, member, &failure) {
            Some(reason) => {
                count(&core.counters.dropped);
                tracing::debug!(error = %failure.text, "request dropped: {reason}");
                Outcome::Drop
            }
            None => {
                count(&core.counters.errors);
                tracing::warn!(error = %failure.text, "reconcile failed");
                Outcome::Retry
            }
        },
        Ok(Ok(Completion::FailedWithAction(failure, action))) => {
            if reason_to_drop(engine, member, &failure).is_some() {
                count(&core.counters.dropped);
            } else {
                count(&core.counters.errors);
                tracing::warn!(error = %failure.text, requeue_after = ?action.requeue_after(), "reconcile failed");
            }
            action.requeue_after().map_or(Outcome::Drop, Outcome::RetryAfter)
        }
        Ok(Ok(Completion::Undecodable(object, error))) => {
            count(&core.counters.dropped);
            if member.add_undecodable(&job.key, object.resource_version()) {
                count(&core.counters.undecodable);
                tracing::error!(%error, "the object can't be decoded; it is reconciled again when it changes");
            }
            Outcome::Drop
        }
        Err(panic) => {
            count(&core.counters.panics);
            tracing::error!(panic = panic_text(&*panic), "the reconciler panicked");
            Outcome::Retry
        }
        Ok(Err(limit)) => {
            count(&core.counters.timeouts);
            tracing::warn!("the reconciler did not end within {} s", limit.as_secs_f32());
            Outcome::Retry
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
