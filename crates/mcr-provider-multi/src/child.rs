//! One child while it runs: its discovery is started, listened to, and started again when it fails.

use std::{sync::Arc, time::Duration};

use mcr_core::{Change, DiscoverySettings, Provider, hub::Backoff, internal::Attempt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::registry::ChildId;

/// A child that ran for longer than this has recovered: its next pause is short again.
const RECOVERED: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A child's discovery failed and is started again after a pause, when the child is listened to again.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: String,
    pub(crate) retry_in: Duration,
}

pub(crate) struct Run {
    pub(crate) id: ChildId,
    provider: Arc<dyn Provider>,
    /// Cancelled when the child is removed, and when the discovery of the multi provider itself ends.
    stop: CancellationToken,
    settings: DiscoverySettings,
    attempt: Option<Attempt>,
    /// When the next attempt may begin. `None` for the first attempt.
    due: Option<Instant>,
    backoff: Backoff,
}

impl Run {
    pub(crate) fn new(
        id: ChildId,
        provider: Arc<dyn Provider>,
        stop: CancellationToken,
        settings: DiscoverySettings,
    ) -> Self {
        Self {
            id,
            provider,
            stop,
            settings,
            attempt: None,
            due: None,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// Waits for the next change or failure, and returns it with the run. `None` once the child has been stopped.
    ///
    /// # Cancellation
    /// Dropping the future drops the child's discovery.
    pub(crate) async fn next(mut self) -> Option<(Self, Result<Change, Failed>)> {
        let stop = self.stop.clone();
        let received = stop.run_until_cancelled(self.listen()).await?;
        Some((self, received))
    }

    async fn listen(&mut self) -> Result<Change, Failed> {
        let mut attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => {
                if let Some(due) = self.due {
                    sleep_until(due).await;
                }
                Attempt::begin(&*self.provider, self.stop.child_token(), &self.settings)
                    .map_err(|panicked| self.failed(panicked, Duration::ZERO))?
            }
        };
        match attempt.next().await {
            Ok(change) => {
                self.attempt = Some(attempt);
                Ok(change)
            }
            Err(error) => Err(self.failed(error, attempt.ran())),
        }
    }

    fn failed(&mut self, error: String, ran: Duration) -> Failed {
        if ran > RECOVERED {
            self.backoff.reset();
        }
        let retry_in = self.backoff.pause();
        self.due = Some(Instant::now() + retry_in);
        Failed { error, retry_in }
    }
}

#[cfg(test)]
mod tests {
    use mcr_provider_clusters::ClustersProvider;

    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_only_a_long_run_shortens_them() {
        let mut run = Run::new(
            0,
            Arc::new(ClustersProvider::new()),
            CancellationToken::new(),
            DiscoverySettings::default(),
        );
        let mut pause = |ran| run.failed(String::new(), ran).retry_in;
        for i in 0..30 {
            let pause = pause(Duration::from_secs(1));
            let full = FIRST_PAUSE.saturating_mul(1 << i.min(16)).min(LONGEST_PAUSE);
            assert!(pause <= full && pause >= full / 2, "{i}: {pause:?}");
        }
        assert!(pause(RECOVERED) >= LONGEST_PAUSE / 2);
        assert!(pause(RECOVERED * 2) <= FIRST_PAUSE);
    }
}
