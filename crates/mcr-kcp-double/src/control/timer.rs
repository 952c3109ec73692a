use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::inner::Inner;

/// Runs delayed steps when they are due, until the last handle of the double is dropped.
pub(crate) async fn run(inner: Weak<Inner>, timed: Arc<Notify>) {
    loop {
        let next = match inner.upgrade() {
            Some(inner) => inner.control.lock().timers.keys().next().map(|(due, _)| *due),
            None => return,
        };
        let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            () = timed.notified() => continue,
            () = tokio::time::sleep_until(next) => {}
        }
        match inner.upgrade() {
            Some(inner) => inner.reconcile(),
            None => return,
        }
    }
}
