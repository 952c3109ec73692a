//! The life of a cluster: the loop that runs the states of an engagement, from the beginning to the end.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use mcr_client::internal::{
    ConnectError,
    user_code::{ANNOUNCED, catch_panic},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{description::DesiredCluster, drain::End, engagement::Engagement};

impl Engagement<'_> {
    /// Runs the engagement until it has ended and its cluster is gone.
    ///
    /// `on_end` is called when draining begins. A scope endpoint replaces its clusters then.
    pub(super) async fn run(mut self: Box<Self>, on_end: impl FnOnce(End) + Send) -> End {
        let end = loop {
            // Code of users may run at any step, even when a value is dropped. A panic in it must not end the supervision of
            // the cluster.
            match AssertUnwindSafe(self.run_states()).catch_unwind().await {
                Ok(end) => break end,
                Err(_) => self.pause_after_panic(),
            }
        };
        Box::pin(self.drain(end, on_end)).await;
        // This drops the last credential sources and clients of the cluster, which are code of users.
        let name = self.cluster.name().clone();
        if let Err(error) = catch_panic(ANNOUNCED, || drop(self)) {
            tracing::error!(cluster = %name, %error, "the cluster has left, but code of its provider panicked when it was dropped");
        }
        end
    }

    /// Shows a panic as the reason why the cluster is unreachable, and pauses the engagement.
    fn pause_after_panic(&mut self) {
        let pause = self.backoff.pause();
        tracing::error!(cluster = %self.cluster.name(), retry_in = ?pause, "the supervisor of the cluster panicked");
        self.paused_until = Some(Instant::now() + pause);
        self.unreachable(ConnectError::new(
            "its supervisor panicked, in mcr or in code of its provider; what this process has written to its standard error says where",
        ));
    }

    /// Waits until the pause after a panic is over, or the provider announces a change.
    async fn wait_for_pause(&mut self, until: Instant) -> Option<End> {
        let changed = tokio::select! {
            () = sleep_until(until) => false,
            _ = self.changes.changed() => true,
        };
        self.paused_until = None;
        if changed { self.take_change() } else { None }
    }

    async fn run_states(&mut self) -> End {
        let stop = match &self.scope_endpoint {
            None => self.fleet.token().clone(),
            Some(endpoint) => endpoint.stop.clone(),
        };
        let mut removed = std::pin::pin!(removed(self.changes.clone(), self.desired.claim));
        loop {
            if !self.cluster.state().is_ready() {
                self.use_default_namespace();
            }
            if self.is_displaced() {
                return End::Replaced;
            }
            let step = async {
                if let Some(until) = self.paused_until {
                    self.wait_for_pause(until).await
                } else if self.desired.spec.suspended().is_some() {
                    self.suspend();
                    self.change().await
                } else if self.cluster.state().is_ready() {
                    self.serve().await
                } else {
                    // In a box: a cluster connects rarely, and its task would reserve the memory for it all the time.
                    Box::pin(self.connect()).await
                }
            };
            let end = tokio::select! {
                end = step => end,
                () = stop.cancelled() => Some(End::Stopped),
                // The step may wait for a silent server or for an exec plugin. That is of no use for a removed cluster.
                () = &mut removed => Some(End::Left),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }
}

/// Waits until the provider has removed the cluster. It may have announced the cluster again since.
async fn removed(mut desired: watch::Receiver<Option<DesiredCluster>>, claim: u64) {
    let other =
        |desired: &Option<DesiredCluster>| desired.as_ref().is_none_or(|desired| desired.claim != claim);
    if desired.wait_for(other).await.is_err() {
        // The sender is gone because the fleet ends. The engagement learns that from its stop token.
        std::future::pending::<()>().await;
    }
}
