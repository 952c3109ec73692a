//! How a running answer ends when the connection it came by is to be given up.
//!
//! An API server checks a credential only when a watch begins, so watches that began with replaced credentials
//! are ended from this side: after a random delay, so that thousands don't begin anew at once, and right
//! after a line, so that their reader sees nothing but the end of a watch, as at any timeout.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use mcr_access::ClusterName;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{Settings, request::Class, shared::Shared};

/// What is to become of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    /// End after the next complete line, or now if there is nothing to read.
    EndAtLine,
    Retired,
    Gone,
}

/// Ties a body to the life of the cluster's connection.
pub(super) struct BodyLease {
    shared: Arc<Shared>,
    class: Class,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    retirement: Retirement,
    at_line_start: bool,
}

enum Retirement {
    /// The generation is the current one.
    NotYet(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The generation is retired; this goes on for the moment.
    Delayed(Pin<Box<Sleep>>),
    /// Ends at the next line, or at the latest when the time is up.
    Ending(Pin<Box<Sleep>>),
}

impl BodyLease {
    pub(super) fn new(shared: Arc<Shared>, class: Class, retired: &CancellationToken) -> Self {
        shared.open_bodies.fetch_add(1, Ordering::Relaxed);
        Self {
            closed: Box::pin(shared.closed.clone().cancelled_owned()),
            retirement: Retirement::NotYet(Box::pin(retired.clone().cancelled_owned())),
            shared,
            class,
            at_line_start: true,
        }
    }

    pub(super) fn cluster(&self) -> &ClusterName {
        &self.shared.cluster
    }

    pub(super) fn is_at_line_start(&self) -> bool {
        self.at_line_start
    }

    pub(super) fn check(&mut self, context: &mut Context<'_>) -> Verdict {
        if self.closed.as_mut().poll(context).is_ready() {
            return Verdict::Gone;
        }
        loop {
            match &mut self.retirement {
                Retirement::NotYet(retired) => {
                    if retired.as_mut().poll(context).is_pending() {
                        return Verdict::GoOn;
                    }
                    let delay = delay(self.class, &self.shared.settings);
                    self.retirement = Retirement::Delayed(Box::pin(tokio::time::sleep(delay)));
                }
                Retirement::Delayed(sleep) => {
                    if sleep.as_mut().poll(context).is_pending() {
                        return Verdict::GoOn;
                    }
                    if self.class != Class::Watch {
                        return Verdict::Retired;
                    }
                    let limit = tokio::time::sleep(self.shared.settings.retire_line);
                    self.retirement = Retirement::Ending(Box::pin(limit));
                }
                Retirement::Ending(limit) => {
                    return match limit.as_mut().poll(context) {
                        Poll::Pending => Verdict::EndAtLine,
                        // A line that takes this long is broken off: half of it must not look like the end.
                        Poll::Ready(()) if self.at_line_start => Verdict::EndAtLine,
                        Poll::Ready(()) => Verdict::Retired,
                    };
                }
            }
        }
    }

    /// Takes note of what came.
    pub(super) fn noted(&mut self, data: &[u8]) {
        self.shared.heard();
        if let Some(last) = data.last() {
            self.at_line_start = *last == b'\n';
        }
    }

    /// Takes note of what came, and cuts it after its last line if the body is to end. Says whether it ends there.
    pub(super) fn data(&mut self, data: Bytes, end_at_line: bool) -> (Bytes, bool) {
        self.noted(&data);
        if !end_at_line {
            return (data, false);
        }
        match data.iter().rposition(|byte| *byte == b'\n') {
            // What follows the line is sent again by the next watch.
            Some(at) => (data.slice(..=at), true),
            None => (data, false),
        }
    }
}

/// How long an answer goes on after its credentials were replaced.
fn delay(class: Class, settings: &Settings) -> Duration {
    match class {
        Class::Watch => settings.retire_spread.mul_f64(rand::random_range(0.0..=1.0)),
        // A list can't be resumed: it gets all the time there is.
        _ => settings.retire_spread + settings.retire_line,
    }
}

impl Drop for BodyLease {
    fn drop(&mut self) {
        self.shared.open_bodies.fetch_sub(1, Ordering::Relaxed);
    }
}
