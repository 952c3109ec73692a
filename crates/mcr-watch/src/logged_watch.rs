//! Log lines about a hub that can't be watched.

use std::{sync::Arc, time::Duration};

use mcr_store::Object;
use tokio::time::sleep;

use crate::{
    hub::{HubEvent, HubWatch},
    request::WatchRequest,
    status::WatchProblem,
};

/// The watch is asked in this interval whether the hub answers again.
const TICK: Duration = Duration::from_secs(2);

/// A watch of a hub that logs when the hub does not answer, and when it answers again: [`HubEvent::Recovered`].
pub struct LoggedWatch<T = Arc<Object>> {
    watch: HubWatch<T>,
    request: WatchRequest,
    /// After this time, a hub that still refuses the watch is logged as one that needs somebody to act.
    blocked_for: Duration,
    /// The trouble that was logged last and is not over.
    outage: Option<Outage>,
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    /// Whether somebody has to do something.
    blocked: bool,
}

impl<T: Clone + Send + 'static> LoggedWatch<T> {
    /// Logs the trouble with a watch of this request.
    pub fn new(watch: HubWatch<T>, request: WatchRequest, blocked_for: Duration) -> Self {
        Self {
            watch,
            request,
            blocked_for,
            outage: None,
        }
    }

    /// The next event, as [`HubWatch::next`]. Cancel safe.
    pub async fn next(&mut self) -> HubEvent<T> {
        loop {
            if self.check_outage() {
                return HubEvent::Recovered;
            }
            tokio::select! {
                biased;
                event = self.watch.next() => {
                    if let HubEvent::Failing(problem) = &event && self.outage.is_none() {
                        self.log(problem);
                    }
                    return event;
                }
                () = sleep(TICK), if self.outage.is_some() => {}
            }
        }
    }

    /// Logs that an outage is over; or once more what is wrong, if it turns out that it will not end by itself. An API
    /// server that has just started forbids everything for a moment. Returns whether the outage is over.
    fn check_outage(&mut self) -> bool {
        let Some(outage) = self.outage else { return false };
        match self.watch.status().problem {
            None => {
                self.outage = None;
                tracing::info!(watch = %self.request, "the hub answers again");
            }
            Some(problem) => {
                let lasts = problem
                    .since
                    .elapsed()
                    .is_ok_and(|lasts| lasts >= self.blocked_for);
                if !outage.blocked && problem.error.is_blocked() && lasts {
                    self.log(&problem);
                }
            }
        }
        self.outage.is_none()
    }

    fn log(&mut self, problem: &WatchProblem) {
        self.outage = Some(Outage {
            blocked: problem.error.is_blocked(),
        });
        tracing::warn!(
            watch = %self.request, error = %problem.error,
            "the objects that describe clusters can't be watched in the hub at the moment; clusters stay as they are, and it is \
             tried again"
        );
    }
}
