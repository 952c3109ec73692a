//! Dispatches and reconciles that need this process to lead.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use mcr_lease::LeaseGuard;
use tokio_util::sync::CancellationToken;

use super::engine::Core;
use crate::{lazy_token::LazyToken, queue::Outcome};

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
    *term = stop.run_until_cancelled(leadership.acquired()).await;
    term.is_some()
}

/// Whether the term has ended.
pub(super) fn is_over(term: Option<&LeaseGuard>) -> bool {
    term.is_some_and(|term| !term.is_held())
}

/// Runs a reconcile in a term. When the term ends, cancels the token of the request. Drops the reconcile and returns `None`
/// if it has not ended when another replica may lead.
pub(super) async fn in_term<T>(
    term: Option<LeaseGuard>,
    token: &LazyToken,
    call: impl Future<Output = T>,
) -> Option<T> {
    let Some(term) = term else {
        return Some(call.await);
    };
    let mut call = pin!(call);
    // Checked before each poll: after a stop of the process, no other task may have run yet.
    let mut call = pin!(poll_fn(|cx| {
        if !term.may_finish() {
            return Poll::Ready(None);
        }
        if !term.is_held() {
            token.cancel();
        }
        call.as_mut().poll(cx).map(Some)
    }));
    tokio::select! {
        biased;
        ended = &mut call => return ended,
        () = term.lost() => token.cancel(),
    }
    tokio::select! {
        biased;
        ended = call => ended,
        () = term.must_stop() => None,
    }
}
