//! Decides when a running body ends: after a rotation of credentials, or when the transport is closed.
//!
//! An API server checks a credential only when a watch starts. So this crate itself ends the watches that started with rotated
//! credentials. Each watch ends after a random delay, so that thousands do not restart at once. It ends after a line, so that
//! its reader sees a normal end of the watch, as after a timeout of the server.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{backoff::jitter, request::RequestClass, settings::Settings, state::TransportState};

/// What a body has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Continue,
    /// End after the next complete line, or at once between two lines if nothing has arrived.
    EndAtLine,
    /// Fail, because the credentials were rotated.
    FailRotated,
    /// Fail, because the transport was closed, or the cluster became unreachable.
    FailEnded,
}

/// Follows one body of a transport: counts it, records when bytes arrive, and decides when it ends.
pub(crate) struct BodyTracker {
    state: Arc<TransportState>,
    class: RequestClass,
    /// Whether its bytes show that an API server answers.
    is_received: bool,
    /// The transport was closed, or the cluster became unreachable.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    rotation: Rotation,
    at_line_start: bool,
}

enum Rotation {
    /// The body's generation of credentials is the current one.
    Current(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The credentials were rotated. The body continues until the delay is over.
    Delayed(Pin<Box<Sleep>>),
    /// The body ends at the end of a line, and fails at this time limit in the middle of one.
    Ending(Pin<Box<Sleep>>),
}

impl BodyTracker {
    /// `rotated` is cancelled when the credentials of the body are rotated, and `ends` when the body has to end.
    pub(crate) fn new(
        state: Arc<TransportState>,
        class: RequestClass,
        is_received: bool,
        rotated: &CancellationToken,
        ends: &CancellationToken,
    ) -> Self {
        state.open_bodies.fetch_add(1, Ordering::Relaxed);
        let is_watch = is_received && class == RequestClass::Watch;
        state.open_watches.fetch_add(is_watch.into(), Ordering::Relaxed);
        Self {
            ended: Box::pin(ends.clone().cancelled_owned()),
            rotation: Rotation::Current(Box::pin(rotated.clone().cancelled_owned())),
            state,
            class,
            is_received,
            at_line_start: true,
        }
    }

    pub(super) fn state(&self) -> &TransportState {
        &self.state
    }

    pub(super) fn is_at_line_start(&self) -> bool {
        self.at_line_start
    }

    /// Decides what the body does next. Wakes the task when the decision changes.
    pub(super) fn poll_action(&mut self, context: &mut Context<'_>) -> Action {
        if self.ended.as_mut().poll(context).is_ready() {
            return Action::FailEnded;
        }
        loop {
            match &mut self.rotation {
                Rotation::Current(rotated) => {
                    if rotated.as_mut().poll(context).is_pending() {
                        return Action::Continue;
                    }
                    let delay = delay(self.class, &self.state.settings);
                    self.rotation = Rotation::Delayed(Box::pin(tokio::time::sleep(delay)));
                }
                Rotation::Delayed(sleep) => {
                    if sleep.as_mut().poll(context).is_pending() {
                        return Action::Continue;
                    }
                    if self.class != RequestClass::Watch {
                        return Action::FailRotated;
                    }
                    let limit = tokio::time::sleep(self.state.settings.rotation_line_timeout);
                    self.rotation = Rotation::Ending(Box::pin(limit));
                }
                Rotation::Ending(limit) => {
                    return match limit.as_mut().poll(context) {
                        Poll::Pending => Action::EndAtLine,
                        Poll::Ready(()) if self.at_line_start => Action::EndAtLine,
                        // An error, because the reader must not take half a line for the end of the watch.
                        Poll::Ready(()) => Action::FailRotated,
                    };
                }
            }
        }
    }

    /// Records that `data` has arrived.
    pub(super) fn record(&mut self, data: &[u8]) {
        if self.is_received {
            self.state.received();
        }
        if let Some(last) = data.last() {
            self.at_line_start = *last == b'\n';
        }
    }

    /// Records that `data` has arrived. With `end_at_line`, cuts it behind its last complete line. Returns the data to hand
    /// over, and whether the body ends after it.
    pub(super) fn record_and_cut(&mut self, data: Bytes, end_at_line: bool) -> (Bytes, bool) {
        self.record(&data);
        if !end_at_line {
            return (data, false);
        }
        match data.iter().rposition(|byte| *byte == b'\n') {
            // The next watch receives the rest again.
            Some(at) => (data.slice(..=at), true),
            None => (data, false),
        }
    }
}

/// How long a body continues after its credentials were rotated.
fn delay(class: RequestClass, settings: &Settings) -> Duration {
    match class {
        RequestClass::Watch => jitter(settings.rotation_spread),
        // No other response can be resumed, so it gets all the time that a watch could take.
        _ => settings.rotation_spread + settings.rotation_line_timeout,
    }
}

impl Drop for BodyTracker {
    fn drop(&mut self) {
        self.state.open_bodies.fetch_sub(1, Ordering::Relaxed);
        let was_watch = self.is_received && self.class == RequestClass::Watch;
        self.state
            .open_watches
            .fetch_sub(was_watch.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of watches that restarted at once would be a flood of requests.
    #[test]
    fn watches_are_spread_and_other_bodies_get_all_the_time() {
        let settings = Settings::default();
        let delays = [(); 100].map(|()| delay(RequestClass::Watch, &settings));
        let (first, last) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(
            *last - *first > settings.rotation_spread / 2 && *last <= settings.rotation_spread,
            "{first:?} to {last:?}"
        );
        let all = settings.rotation_spread + settings.rotation_line_timeout;
        assert_eq!(delay(RequestClass::Unary, &settings), all);
    }
}
