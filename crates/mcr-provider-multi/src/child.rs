//! One child while it runs: its discovery is started, listened to, and started again when it fails.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use mcr_core::{Change, Discovery, Provider};
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

struct Attempt {
    discovery: Discovery,
    stop: CancellationToken,
    started: Instant,
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
                    .map_err(|panic| self.failed(panic, Duration::ZERO))?
            }
        };
        match attempt.next().await {
            Ok(change) => {
                self.attempt = Some(attempt);
                Ok(change)
            }
            Err(error) => Err(self.failed(error, attempt.started.elapsed())),
        }
    }

    fn failed(&mut self, error: String, ran: Duration) -> Failed {
        let retry_in = self.backoff.next(ran);
        self.due = Some(Instant::now() + retry_in);
        Failed { error, retry_in }
    }
}

impl Attempt {
    // A provider should not panic. If one does, it is one child that fails and not all of them.
    fn begin(provider: &dyn Provider, stop: CancellationToken) -> Result<Self, String> {
        match catch_unwind(AssertUnwindSafe(|| provider.discover(stop.clone()))) {
            Ok(discovery) => Ok(Self {
                discovery,
                stop,
                started: Instant::now(),
            }),
            Err(panic) => {
                stop.cancel();
                Err(panicked("when its discovery was started", &*panic))
            }
        }
    }

    async fn next(&mut self) -> Result<Change, String> {
        match AssertUnwindSafe(self.discovery.next()).catch_unwind().await {
            Ok(Some(Ok(change))) => Ok(change),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Ok(None) => Err("the provider ended its discovery without being told to".to_owned()),
            Err(panic) => Err(panicked("in its discovery", &*panic)),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.stop.cancel();
        let discovery = std::mem::replace(&mut self.discovery, stream::empty().boxed());
        // A provider that panics even now must not take the others along.
        if catch_unwind(AssertUnwindSafe(|| drop(discovery))).is_err() {
            tracing::error!("a child panicked when its discovery was dropped");
        }
    }
}

fn panicked(when: &str, panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "a panic without a text",
    };
    format!("the provider panicked {when}: {text}")
}
