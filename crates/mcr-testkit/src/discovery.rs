//! A running discovery, for tests that check its announcements one by one.
//!
//! ```
//! use mcr_core::Provider;
//! use mcr_testkit::discovery::Followed;
//!
//! # async fn test(provider: impl Provider) {
//! let mut clusters = Followed::of(&provider);
//! assert_eq!(clusters.until("synced").await, ["+berlin", "synced"]);
//! # }
//! ```

use std::time::Duration;

use futures::StreamExt;
use mcr_core::{
    Access, AccessPolicy, AddressPolicy, Availability, BoxError, Change, ClusterSpec, Discovery, Provider,
};
use secrecy::ExposeSecret;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::suite::fail;

/// How long an announcement may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An access policy for tests, where all clusters are on this machine.
pub fn loopback_policy() -> AccessPolicy {
    AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true))
}

/// A running discovery. Its methods fail the test if the discovery ends, or announces nothing for two minutes.
pub struct Followed(pub Discovery);

impl Followed {
    /// Starts a discovery as a fleet with the policy [`loopback_policy`] does.
    pub fn of(provider: &impl Provider) -> Self {
        Self(provider.discover_with(CancellationToken::new(), &loopback_policy().into()))
    }

    async fn item(&mut self) -> Result<Change, BoxError> {
        match timeout(PATIENCE, self.0.next()).await {
            Ok(Some(item)) => item,
            Ok(None) => fail("the discovery has ended"),
            Err(_) => fail(format!("nothing is announced within {PATIENCE:?}")),
        }
    }

    /// The next announcement.
    pub async fn next(&mut self) -> Change {
        self.item().await.unwrap_or_else(|error| fail(error))
    }

    /// The next announcement as a [`line()`].
    pub async fn line(&mut self) -> String {
        line(&self.next().await)
    }

    /// The next announcements up to `last`, as [`line()`]s.
    pub async fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            lines.push(self.line().await);
        }
        lines
    }

    /// The error that ends the discovery.
    pub async fn error(mut self) -> String {
        match self.item().await {
            Ok(change) => fail(format!("announced instead of an error: {}", line(&change))),
            Err(error) => error.to_string(),
        }
    }

    /// The clusters that are announced before `Synced`.
    pub async fn all(&mut self) -> Vec<ClusterSpec> {
        let mut clusters = Vec::new();
        loop {
            match self.next().await {
                Change::Upsert(spec) => clusters.push(spec),
                Change::Synced => return clusters,
                other => fail(line(&other)),
            }
        }
    }
}

/// The memory in bytes that a discovery holds for each cluster beside the cluster's spec. It is measured as the memory
/// that is freed when the discovery ends. The hub must have `clusters` clusters, and no watches of anybody else.
/// `used` returns how much memory the process has allocated.
///
/// # Panics
/// If the discovery does not announce exactly `clusters` clusters, or does not have exactly `watches` watches.
#[cfg(all(feature = "sim", feature = "waiting"))]
pub async fn bytes_per_cluster(
    provider: &impl Provider,
    hub: &crate::sim::SimCluster,
    clusters: usize,
    watches: usize,
    used: impl Fn() -> usize,
) -> usize {
    let watched = |count: usize| {
        crate::waiting::eventually(PATIENCE, format!("{count} watches"), move || {
            hub.watches() == count
        })
    };
    let mut bytes = 0;
    // The first round is not measured: it also allocates threads and the caches of the hub.
    for _ in 0..2 {
        let mut discovery = Followed::of(provider);
        // Kept until the end, so that the memory of the specs is not measured.
        let specs = discovery.all().await;
        if specs.len() != clusters {
            fail(format!("not {clusters} clusters"));
        }
        // Now the watches have begun, so the bodies of the lists are freed.
        watched(watches).await;
        let with = used();
        drop(discovery);
        watched(0).await;
        bytes = with.saturating_sub(used()) / clusters;
        drop(specs);
    }
    bytes
}

/// The address of an access and its token: `https://a:6443/ secret`. The token is left out if the kubeconfig does not
/// contain it.
pub fn address_and_token(access: &Access) -> String {
    let parsed = match access {
        Access::Kubeconfig(kubeconfig) => kubeconfig.parse().map_err(|error| error.to_string()),
        Access::Endpoint(access) => Ok((**access).clone()),
        other => Err(format!("{other:?}")),
    };
    let access = match parsed {
        Ok(access) => access,
        Err(error) => return error,
    };
    let token = access.credentials.known().and_then(|known| known.token.as_ref());
    let token = token.map_or("", |token| token.expose_secret());
    format!("{} {token}", access.endpoint.server)
}

/// A short form of an announcement: `+name`, `~name: why it is suspended`, `!name: object: error`, `-name` or
/// `synced`.
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
