//! Dispatches and reconciles that need this process to lead.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use mcr_lease::LeaseGuard;
use tokio_util::sync::CancellationToken;

use crate::{controller::engine::Core, queue::Outcome};

/// The outcome of a request that was not reconciled, or not to its end, because this process does not lead. The queue
/// keeps it.
pub(super) const AGAIN: Outcome = Outcome::Success {
    requeue_after: Some(Duration::ZERO),
};

/// Waits until requests may be dispatched, and keeps the term in which they may. Returns `false` after `stop`.
pub(super) async fn wait(core: &Core, stop: &CancellationToken, term: &mut Option<LeaseGuard>) -> bool {
    let Some(leadership) = core.needs() else {
        return true;
    };
    if term.as_ref().is_some_and(LeaseGuard::is_held) {
        return true;
    }
    let has_led = term.is_some();
    *term = stop.run_until_cancelled(leadership.acquired()).await;
    if has_led {
        core.leads_again();
    } else {
        core.reopened();
    }
    term.is_some()
}

/// Waits for something. Returns `None` if the term ends first.
pub(super) async fn before_end<T>(term: Option<&LeaseGuard>, next: impl Future<Output = T>) -> Option<T> {
    let Some(term) = term else {
        return Some(next.await);
    };
    tokio::select! {
        biased;
        next = next => Some(next),
        () = term.lost() => None,
    }
}

/// Whether the term has ended.
pub(super) fn is_over(term: Option<&LeaseGuard>) -> bool {
    term.is_some_and(|term| !term.is_held())
}

/// Why a reconcile has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The term was over before it began.
    NotBegun,
    /// Another replica may lead.
    Aborted,
}

/// Runs a reconcile or a task in a term, but does not begin it after the term. When the term ends, calls `cancel`. Drops the
/// work if it has not ended when another replica may lead.
pub(crate) async fn in_term<T>(
    term: Option<LeaseGuard>,
    cancel: impl Fn(),
    call: impl Future<Output = T>,
) -> Result<T, Cut> {
    let Some(term) = term else {
        return Ok(call.await);
    };
    let mut call = pin!(call);
    let mut has_begun = false;
    // Checked before each poll: after a stop of the process, no other task may have run yet.
    let mut call = pin!(poll_fn(|cx| {
        let is_held = term.is_held();
        if !is_held && !has_begun {
            return Poll::Ready(Err(Cut::NotBegun));
        }
        if !term.may_finish() {
            return Poll::Ready(Err(Cut::Aborted));
        }
        if !is_held {
            cancel();
        }
        has_begun = true;
        call.as_mut().poll(cx).map(Ok)
    }));
    tokio::select! {
        biased;
        ended = &mut call => return ended,
        () = term.lost() => cancel(),
    }
    tokio::select! {
        biased;
        ended = call => ended,
        () = term.must_stop() => Err(Cut::Aborted),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::json;
    use mcr_testkit::sim::SimCluster;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    /// After a stop of the process, the first thing that runs may be a reconcile that was spawned in time.
    #[tokio::test]
    async fn no_reconcile_begins_after_the_renew_deadline() {
        let candidate = mcr_lease::Candidate::new("lock").lease_duration(Duration::from_secs(3600));
        let candidate = candidate
            .renew_deadline(Duration::from_secs(1))
            .retry_period(Duration::from_millis(10));
        let (election, server) = (candidate.build().unwrap(), SimCluster::new());
        // A Lease that was released is taken at once.
        let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"});
        let metadata = json!({"name": "lock", "namespace": "default"});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        server.create(lease).unwrap();
        let leadership = election.leadership();
        let _running = AbortOnDropHandle::new(tokio::spawn(
            election.run(server.client(), CancellationToken::new()),
        ));
        let term = leadership.acquired().await;
        assert_eq!(in_term(Some(term.clone()), || (), async {}).await, Ok(()));
        // This thread runs the election too, so nothing is renewed.
        while term.is_held() {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(term.may_finish());
        let begins = async { panic!("it begins") };
        assert_eq!(in_term::<()>(Some(term), || (), begins).await, Err(Cut::NotBegun));
    }
}
