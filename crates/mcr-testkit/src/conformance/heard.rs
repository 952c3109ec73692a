//! A discovery that a test follows.

use std::time::Duration;

use futures::StreamExt;
use mcr_core::{Availability, Change, Discovery, Provider};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

/// A discovery that a test of a provider follows. Each method panics after a minute without an announcement.
#[expect(missing_debug_implementations, reason = "a stream has no Debug")]
pub struct Heard(
    /// The rest of the announcements.
    pub Discovery,
);

impl Heard {
    /// Starts a discovery.
    pub fn of(provider: &impl Provider) -> Self {
        Self(provider.discover(CancellationToken::new()))
    }

    async fn item(&mut self) -> Result<Change, String> {
        let item = timeout(PATIENCE, self.0.next()).await;
        let item = item.unwrap_or_else(|_| panic!("no announcement within {PATIENCE:?}"));
        let item = item.unwrap_or_else(|| panic!("the discovery has ended"));
        item.map_err(|error| error.to_string())
    }

    /// The next announcement.
    pub async fn next(&mut self) -> Change {
        self.item().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next announcement as a [`line`].
    pub async fn line(&mut self) -> String {
        line(&self.next().await)
    }

    /// The next announcements up to this line.
    pub async fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            lines.push(self.line().await);
        }
        lines
    }

    /// The error that ends the discovery, as the next item.
    pub async fn error(mut self) -> String {
        match self.item().await {
            Err(error) => error,
            Ok(change) => panic!("{} in place of an error", line(&change)),
        }
    }
}

/// An announcement in short: `+a`, `~a: why it is suspended`, `!a: object: error`, `-a` or `synced`.
pub fn line(change: &Change) -> String {
    match change {
        Change::Upsert(spec) => match &spec.availability {
            Availability::Suspended { reason } => format!("~{}: {reason}", spec.name),
            _ => format!("+{}", spec.name),
        },
        Change::Broken(broken) => format!("!{}: {}: {}", broken.name, broken.object, broken.error),
        Change::Remove(name) => format!("-{name}"),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    }
}
