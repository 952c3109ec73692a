//! Providers.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{StreamExt, stream};
use mcr_core::{Access, BoxError, Change, ClusterSpec, Discovery, Fleet, Provider};
use mcr_testkit::waiting::{Background, eventually};
use tokio_util::sync::CancellationToken;

use super::{At, CANARY, SOON, Trap, client::Client};
use crate::harness::{name, ready};

/// Announces a cluster in each discovery, and panics where it is told to.
struct Sick {
    name: String,
    trap: Trap,
    access: Access,
}

struct Announcing {
    trap: Trap,
    changes: stream::BoxStream<'static, Result<Change, BoxError>>,
}

impl stream::Stream for Announcing {
    type Item = Result<Change, BoxError>;
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.trap.pass(At::Listened);
        self.changes.poll_next_unpin(context)
    }
}

impl Drop for Announcing {
    fn drop(&mut self) {
        self.trap.pass(At::StreamDropped);
    }
}

#[derive(Debug)]
struct Unspeakable(Trap);

impl fmt::Display for Unspeakable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.pass(At::Shown);
        f.write_str("no hub")
    }
}

impl std::error::Error for Unspeakable {}

impl Provider for Sick {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.trap.pass(At::Started);
        let now = self.trap.now();
        let fails = matches!(now, At::Shown | At::StreamDropped);
        let failure = fails.then(|| Err(Unspeakable(self.trap.clone()).into()));
        let spec = ClusterSpec::new(name(&self.name), self.access.clone());
        let changes = [Ok(Change::Upsert(spec)), Ok(Change::Synced)].into_iter();
        let changes = failure.into_iter().chain(changes);
        let changes = stream::iter(changes)
            .chain(stream::pending())
            .take_until(stop.cancelled_owned());
        Box::pin(Announcing {
            trap: self.trap.clone(),
            changes: changes.boxed(),
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_panics_reports_so_and_its_discovery_is_started_again() {
    let log = mcr_testkit::log::Log::of_this_process();
    let access = Client::at(At::Nowhere).access();
    let ways = [At::Started, At::Listened, At::Shown, At::StreamDropped];
    let traps = ways.map(Trap::at);
    let fleet = ways
        .iter()
        .zip(&traps)
        .fold(Fleet::builder(), |fleet, (at, trap)| {
            fleet.provider(Sick {
                name: format!("{at:?}").to_lowercase(),
                trap: trap.clone(),
                access: access.clone(),
            })
        });
    let fleet = fleet
        .settings(|settings| settings.allow_duplicates = true)
        .build();
    let runs = fleet.clone();
    let running = Background::start(|stop| async move { runs.run(stop).await });
    // All at once: the pauses of one that is left to panic grow.
    let checks = ways.iter().zip(&traps).map(|(at, trap)| {
        let (provider, fleet) = (format!("{at:?}").to_lowercase(), &fleet);
        async move {
            let status = || {
                let providers = fleet.providers();
                providers
                    .into_iter()
                    .find(|status| *status.name == *provider)
                    .unwrap()
            };
            let error = eventually(SOON, format!("{provider} has an error"), || status().last_error).await;
            let because = match at {
                At::StreamDropped => "no hub",
                _ => "the provider's discovery panicked",
            };
            assert!(
                error.contains(because) && !error.contains(CANARY),
                "{provider}: {error}"
            );
            let panics = trap.panics();
            eventually(SOON, format!("{provider} is tried again"), || {
                trap.panics() > panics
            })
            .await;
            assert!(status().restarts > 0);
            trap.set(At::Nowhere);
            let cluster = eventually(SOON, "its cluster is engaged", || fleet.get(&provider).ok()).await;
            ready(&cluster).await;
            eventually(SOON, "all was said", || status().synced).await;
        }
    });
    futures::future::join_all(checks).await;
    traps[1].set(At::StreamDropped);
    running.stop().await;
    assert!(fleet.snapshot().clusters.is_empty());
    assert_eq!(log.lines_with(CANARY), [""; 0]);
}
