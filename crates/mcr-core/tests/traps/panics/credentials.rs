//! Sources of credentials.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{
    Access, Credential, CredentialError, CredentialSource, Endpoint, EndpointAccess, Fingerprint, Refresh,
};
use mcr_testkit::waiting::eventually;

use super::{At, CANARY, SOON, Trap, unreachable};
use mcr_doubles::scripted::{Answer, Server};

use crate::harness::{Running, name, quiet_server, ready};

/// Hands out `token-1`, `token-2` and so on.
#[derive(Clone)]
struct Source {
    trap: Trap,
    asked: Arc<AtomicUsize>,
    lasts: Duration,
}

impl Source {
    fn at(at: At) -> Self {
        Self {
            trap: Trap::at(at),
            asked: Arc::default(),
            lasts: Duration::from_secs(3600),
        }
    }

    fn access(&self, server: &Server) -> Access {
        let endpoint = Endpoint::new(format!("http://{}", server.address).parse().unwrap());
        Access::from(EndpointAccess::new(endpoint, self.clone()))
    }
}

impl CredentialSource for Source {
    fn fingerprint(&self) -> Fingerprint {
        self.trap.pass(At::Fingerprint);
        Fingerprint::of(&"the source of a test")
    }

    fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        self.trap.pass(At::Asked);
        Box::pin(async {
            tokio::task::yield_now().await;
            self.trap.pass(At::Awaited);
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Credential::token(format!("token-{number}")).expires_at(SystemTime::now() + self.lasts))
        })
    }

    fn renew_every(&self) -> Option<Duration> {
        self.trap.pass(At::RenewEvery);
        None
    }
}

const OF_THE_SOURCE: &str = "credential source panicked";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_source_that_panics_makes_its_cluster_unreachable_until_it_no_longer_does() {
    let log = mcr_testkit::log::Log::of_this_process();
    let server = quiet_server().await;
    let running = Running::start();
    for at in [At::Asked, At::Awaited, At::Fingerprint, At::RenewEvery] {
        let source = Source::at(at);
        let cluster = running
            .join_by(&format!("{at:?}").to_lowercase(), source.access(&server))
            .await;
        unreachable(&cluster, OF_THE_SOURCE).await;
        source.trap.panics_again(2).await;
        source.trap.set(At::Nowhere);
        ready(&cluster).await;
    }
    running.stop().await;
    assert_eq!(log.lines_with(CANARY), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_source_that_panics_before_expiry_leaves_the_cluster_as_it_is_and_is_asked_again() {
    let server = quiet_server().await;
    let running = Running::start();
    let mut source = Source::at(At::Nowhere);
    // The next one is asked for after a second.
    source.lasts = Duration::from_millis(1200);
    let cluster = running.join_by("a", source.access(&server)).await;
    ready(&cluster).await;
    source.trap.set(At::Awaited);
    let reported = || {
        let status = running.fleet.snapshot().clusters.remove(0);
        let of_it = |warning: &&Arc<str>| warning.contains(OF_THE_SOURCE);
        let warning = status.warnings.iter().find(of_it)?.clone();
        Some((status.state, warning))
    };
    let (state, warning) = eventually(SOON, "the cluster has a warning", reported).await;
    assert_eq!(state, "Ready");
    assert!(!warning.contains(CANARY), "{warning}");
    source.trap.panics_again(1).await;
    let asked = source.asked.load(Ordering::SeqCst);
    source.trap.set(At::Nowhere);
    eventually(SOON, "a new credential", || {
        source.asked.load(Ordering::SeqCst) > asked
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_has_expired_when_it_comes_is_used_with_a_warning_and_counts_as_a_failure() {
    let server = quiet_server().await;
    let running = Running::start();
    let mut source = Source::at(At::Nowhere);
    source.lasts = Duration::ZERO;
    let cluster = running.join_by("a", source.access(&server)).await;
    ready(&cluster).await;
    let failed = || running.fleet.counts().credentials.failed;
    eventually(SOON, "it is renewed", || failed() > 0).await;
    let status = running.fleet.snapshot().clusters.remove(0);
    assert_eq!(status.state, "Ready");
    let warning = |warning: &Arc<str>| warning.contains("had expired when it came");
    assert!(status.warnings.iter().any(warning), "{:?}", status.warnings);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_and_then_refuses_each_credential_does_not_keep_the_source_busy() {
    let server = Server::start(|_| Answer::status(401, "Unauthorized", "Unauthorized")).await;
    let running = Running::start();
    let source = Source::at(At::Nowhere);
    let cluster = running.join_by("a", source.access(&server)).await;
    ready(&cluster).await;
    for _ in 0..50 {
        let answer = cluster.api::<ConfigMap>().list(&Default::default()).await;
        assert!(answer.is_err());
    }
    // With a pause that doubles from one second on, even if a request takes a second on this machine.
    let asked = source.asked.load(Ordering::SeqCst);
    assert!((2..=9).contains(&asked), "{asked}");
    running.stop().await;
}

/// Panics when the last of it is dropped, which is the fleet's task for the cluster.
struct Sore(Source);

impl CredentialSource for Sore {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&"a sore one")
    }
    fn credential(&self, why: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
        self.0.credential(why)
    }
}

impl Drop for Sore {
    fn drop(&mut self) {
        self.0.trap.pass(At::SourceDropped);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_source_that_panics_when_it_is_dropped_strands_nobody() {
    let server = quiet_server().await;
    let running = Running::start();
    // Its cluster is removed, and comes back. A handle would keep the source.
    for _ in 0..2 {
        let source = Source::at(At::SourceDropped);
        let endpoint = Endpoint::new(format!("http://{}", server.address).parse().unwrap());
        let access = Access::from(EndpointAccess::new(endpoint, Sore(source.clone())));
        ready(&running.join_by("a", access).await).await;
        // The last owner of the source gets its panic. That is the fleet, or this thread if the fleet is quicker.
        let remove = || running.clusters.remove(&name("a"));
        _ = catch_unwind(AssertUnwindSafe(remove));
        eventually(SOON, "it is dropped", || source.trap.panics() > 0).await;
    }
    running.stop().await;
}
