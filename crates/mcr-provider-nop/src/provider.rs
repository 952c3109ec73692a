use std::sync::Arc;

use futures::{StreamExt, stream};
use mcr_core::{Change, Discovery, Provider};
use tokio_util::sync::CancellationToken;

/// A provider without clusters: it announces [`Change::Synced`] and nothing else.
///
/// # Cancellation
/// A discovery has no task of its own. It ends as soon as its token is cancelled.
#[derive(Debug, Clone)]
pub struct NopProvider {
    pub(crate) name: Arc<str>,
}

impl Provider for NopProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let idle = stream::pending().take_until(stop.cancelled_owned());
        stream::iter([Ok(Change::Synced)]).chain(idle).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_synced_then_nothing_until_it_is_stopped() {
        let stop = CancellationToken::new();
        let provider = NopProvider::builder().provider_name("none").build();
        assert_eq!(provider.name(), "none");
        let mut discovery = provider.discover(stop.clone());
        assert!(matches!(discovery.next().await, Some(Ok(Change::Synced))));
        let silence = tokio::time::timeout(Duration::from_secs(3600), discovery.next()).await;
        assert!(silence.is_err(), "nothing follows: {silence:?}");
        stop.cancel();
        assert!(discovery.next().await.is_none());
    }
}
