//! A provider that wraps the provider under test. It counts announcements and can end the running discovery.

use std::sync::Arc;

use futures::{StreamExt, stream};
use mcr_core::{Change, Discovery, DiscoverySettings, Provider};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub(super) struct Tap(Arc<Inner>);

struct Inner {
    provider: Arc<dyn Provider>,
    /// Whether discoveries may begin.
    open: watch::Sender<bool>,
    running: Mutex<CancellationToken>,
    announced: Mutex<Vec<String>>,
}

impl Tap {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Self {
        Self(Arc::new(Inner {
            provider,
            open: watch::Sender::new(true),
            running: Mutex::default(),
            announced: Mutex::default(),
        }))
    }

    /// Ends the running discovery. The next one does not start before [`reopen`](Self::reopen).
    pub(super) fn cut(&self) {
        self.0.open.send_replace(false);
        self.0.running.lock().cancel();
    }

    pub(super) fn reopen(&self) {
        self.0.open.send_replace(true);
    }

    /// How often this announcement was made.
    pub(super) fn count(&self, line: &str) -> usize {
        self.0
            .announced
            .lock()
            .iter()
            .filter(|announced| *announced == line)
            .count()
    }
}

impl Provider for Tap {
    fn name(&self) -> &str {
        self.0.provider.name()
    }

    fn searched(&self) -> String {
        self.0.provider.searched()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let running = stop.child_token();
        *self.0.running.lock() = running.clone();
        let (tap, settings) = (self.0.clone(), settings.clone());
        let begin = async move {
            // Fails only if the sender is dropped, but this task holds it.
            let _ = tap.open.subscribe().wait_for(|open| *open).await;
            let provider = tap.provider.clone();
            provider.discover_with(stop, &settings).inspect(move |change| {
                let line = match change {
                    Ok(Change::Upsert(spec)) => format!("+{}", spec.name),
                    Ok(Change::Broken(broken)) => format!("!{}", broken.name),
                    Ok(Change::Remove(name)) => format!("-{name}"),
                    Ok(Change::Synced) => "synced".to_owned(),
                    Ok(_) => return,
                    Err(error) => format!("error: {error}"),
                };
                tap.announced.lock().push(line);
            })
        };
        stream::once(begin)
            .flatten()
            .take_until(running.cancelled_owned())
            .boxed()
    }
}
