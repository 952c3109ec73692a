//! What the queue is told of a reconcile that has ended.

use std::time::Duration;

use super::{engine::Engine, member::Member, run::Job, status::count};
use crate::{
    Action,
    failure::{Failure, panic_text},
    queue::Outcome,
    reconciler::{Ended, Standing},
};

pub(super) type Panic = Box<dyn std::any::Any + Send>;

/// What follows from how a reconcile ended.
pub(super) fn judge(
    engine: &Engine,
    member: &Member,
    work: &Job,
    standing: Standing,
    ended: Result<Result<Ended, Duration>, Panic>,
) -> Outcome {
    let core = &engine.core;
    if !matches!(ended, Ok(Ok(Ended::Undecodable(..)))) {
        member.decoded(&work.key);
    }
    match ended {
        Ok(Ok(Ended::Done(action))) => {
            if let Standing::Deleted(object) = &standing {
                member.buried(&work.key, object);
            }
            count(&core.counters.successes);
            success(&standing, action)
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
        Ok(Ok(Ended::Undecodable(object, error))) => {
            count(&core.counters.dropped);
            if member.is_news(&work.key, object.resource_version()) {
                count(&core.counters.undecodable);
                tracing::error!(%error, "the object is not reconciled before it changes");
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

fn success(standing: &Standing, action: Action) -> Outcome {
    // A reconciler that plans the next look at every end must not look at objects that are gone for ever.
    let exists = matches!(standing, Standing::Exists);
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
