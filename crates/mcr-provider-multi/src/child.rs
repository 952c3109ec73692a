//! One child while it runs: its discovery is started, listened to, and started again when it fails.

use std::{sync::Arc, time::Duration};

use mcr_core::{Change, Provider, internal::Attempt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{backoff::Backoff, registry::ChildId};

/// A child's discovery failed and is started again after a pause, when the child is listened to again.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: String,
    pub(crate) retry_in: Duration,
}

pub(crate) struct Run {
    pub(crate) id: ChildId,
    provider: Arc<dyn Provider>,
    /// Cancelled when the child is removed, or the discovery of all children ends.
    stop: CancellationToken,
    attempt: Option<Attempt>,
    /// When the next attempt may begin; none for the first.
    due: Option<Instant>,
    backoff: Backoff,
}

impl Run {
    pub(crate) fn new(id: ChildId, provider: Arc<dyn Provider>, stop: CancellationToken) -> Self {
        Self {
            id,
            provider,
            stop,
            attempt: None,
            due: None,
            backoff: Backoff::default(),
        }
    }

    /// What is heard next; gives itself back with it. None once the child has been stopped.
    ///
    /// # Cancellation
    /// Dropping the future drops the child's discovery.
    pub(crate) async fn next(mut self) -> Option<(Self, Result<Change, Failed>)> {
        let stop = self.stop.clone();
        let heard = stop.run_until_cancelled(self.listen()).await?;
        Some((self, heard))
    }

    async fn listen(&mut self) -> Result<Change, Failed> {
        let mut attempt = match self.attempt.take() {
            Some(attempt) => attempt,
            None => {
                if let Some(due) = self.due {
                    sleep_until(due).await;
                }
                Attempt::begin(&*self.provider, self.stop.child_token())
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
        let retry_in = self.backoff.next(ran);
        self.due = Some(Instant::now() + retry_in);
        Failed { error, retry_in }
    }
}
