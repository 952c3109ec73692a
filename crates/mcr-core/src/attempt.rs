//! One attempt at a discovery: from its start to its failure.

use std::{future::poll_fn, task::Poll};

use futures::StreamExt;
use mcr_client::internal::user_code::{CatchPanic, DISCOVERY, catch_panic};
use tokio_util::sync::CancellationToken;

use crate::provider::{Change, Discovery, DiscoverySettings, Provider};

/// A running discovery of a provider. Every kind of failure, also a panic, becomes an error text.
///
/// Dropping it cancels the token of the discovery, and drops the discovery.
pub(crate) struct Attempt {
    discovery: CatchPanic<Discovery>,
    stop: CancellationToken,
}

impl Attempt {
    /// Starts a discovery. Dropping the attempt cancels `stop`.
    ///
    /// # Errors
    /// If the provider panics.
    pub(crate) fn begin(
        provider: &dyn Provider,
        stop: CancellationToken,
        settings: &DiscoverySettings,
    ) -> Result<Self, String> {
        match catch_panic(DISCOVERY, || provider.discover_with(stop.clone(), settings)) {
            Ok(discovery) => Ok(Self {
                discovery: CatchPanic::new(DISCOVERY, discovery),
                stop,
            }),
            Err(panicked) => {
                stop.cancel();
                Err(panicked.to_string())
            }
        }
    }

    /// The next change. Cancel safe.
    ///
    /// # Errors
    /// If the discovery has failed, with the reason. No change follows an error.
    pub(crate) async fn next(&mut self) -> Result<Change, String> {
        poll_fn(|context| {
            let next = self.discovery.with(|discovery| {
                // Inside the guard against panics, because `to_string` of the error is code of the provider as well.
                discovery.poll_next_unpin(context).map(|item| match item {
                    Some(Ok(change)) => Ok(change),
                    Some(Err(error)) => Err(error.to_string()),
                    None => Err("the provider ended its discovery before it was stopped".to_owned()),
                })
            });
            next.unwrap_or_else(|panicked| Poll::Ready(Err(panicked.to_string())))
        })
        .await
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
