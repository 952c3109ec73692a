//! The connections of one discovery: to the workspace of the endpoint slice, and to the endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, future, stream};
use mcr_core::{
    Access, AccessPolicy, Change, Cluster, ClusterName, ClusterSpec, ClusterState, Discovery, Fleet,
    InvalidClusterName, Provider,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Clusters in a fleet of their own, which dials them, probes them and renews their credentials. Dropping this disconnects.
pub(crate) struct Connections {
    fleet: Fleet,
    wanted: watch::Sender<Wanted>,
    /// How many connections have been opened.
    opened: u64,
    _running: AbortOnDropHandle<()>,
}

/// The access of each connection. It never changes under a name.
type Wanted = BTreeMap<ClusterName, Access>;

/// Announces the connections that are wanted.
struct Follow {
    name: Arc<str>,
    wanted: watch::Receiver<Wanted>,
}

impl Provider for Follow {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let start = (self.wanted.clone(), None::<BTreeSet<ClusterName>>);
        let rounds = stream::unfold(start, async |(mut wanted, announced)| {
            if announced.is_some() && wanted.changed().await.is_err() {
                // The connections are being dropped. An end of the stream would be logged as a failure.
                future::pending::<()>().await;
            }
            let now = wanted.borrow_and_update().clone();
            let names: BTreeSet<ClusterName> = now.keys().cloned().collect();
            let first = announced.is_none();
            let announced = announced.unwrap_or_default();
            let left = announced.difference(&names).cloned().map(Change::Remove);
            let new = now.into_iter().filter(|(name, _)| !announced.contains(name));
            // The connections are known by their addresses: kcp shows no namespace kube-system there.
            let new = new.map(|(name, access)| {
                Change::Upsert(ClusterSpec::new(name.clone(), access).identity(name.as_str()))
            });
            let changes: Vec<Change> = left.chain(new).chain(first.then_some(Change::Synced)).collect();
            Some((stream::iter(changes.into_iter().map(Ok)), (wanted, Some(names))))
        });
        rounds.flatten().take_until(stop.cancelled_owned()).boxed()
    }
}

impl Connections {
    /// Starts without connections.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(crate) fn start(provider: &Arc<str>, policy: AccessPolicy) -> Self {
        let (wanted, receiver) = watch::channel(Wanted::new());
        let follow = Follow {
            name: provider.clone(),
            wanted: receiver,
        };
        let fleet = Fleet::builder()
            .provider(follow)
            .settings(|settings| {
                settings.access_policy = policy;
                settings.internal = true;
                // An address is known by its URL: a namespace kube-system there is one of a tenant.
                settings.declared_identity_suffices = true;
            })
            .build();
        let running = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.run(CancellationToken::new()).await }
        });
        Self {
            fleet,
            wanted,
            opened: 0,
            _running: AbortOnDropHandle::new(running),
        }
    }

    /// Opens a connection. Does not wait for an answer.
    ///
    /// # Errors
    /// If the address can't be part of a cluster name.
    pub(crate) async fn open(
        &mut self,
        address: &str,
        access: Access,
    ) -> Result<Cluster, InvalidClusterName> {
        self.opened += 1;
        // A name of its own: a connection to the same address that was closed a moment ago may still be in the fleet.
        let name = ClusterName::new(format!("{address}, connection {}", self.opened))?;
        let mut events = self.fleet.subscribe();
        self.wanted
            .send_modify(|wanted| _ = wanted.insert(name.clone(), access));
        loop {
            if let Ok(cluster) = self.fleet.get(name.as_str()) {
                return Ok(cluster);
            }
            events.next().await;
        }
    }

    /// Closes a connection.
    pub(crate) fn close(&self, name: &ClusterName) {
        self.wanted
            .send_if_modified(|wanted| wanted.remove(name).is_some());
    }
}

/// Waits until the first attempt to connect has ended. A request before that would fail at once. Cancel safe.
pub(crate) async fn attempted(connection: &Cluster) -> ClusterState {
    let is_attempt =
        |state: &ClusterState| matches!(state, ClusterState::Discovered | ClusterState::Connecting);
    connection.wait_for(|state| !is_attempt(state)).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use mcr_core::{Credential, Endpoint, EndpointAccess, StaticCredential};
    use mcr_testkit::waiting::eventually;

    use super::*;

    /// At a stop the sender is dropped before the fleet. An end of the discovery would be logged as a failure.
    #[tokio::test]
    async fn a_discovery_whose_connections_are_dropped_does_not_end() {
        let (wanted, receiver) = watch::channel(Wanted::new());
        let follow = Follow {
            name: "kcp".into(),
            wanted: receiver,
        };
        let mut discovery = follow.discover(CancellationToken::new());
        assert!(matches!(discovery.next().await, Some(Ok(Change::Synced))));
        drop(wanted);
        assert!(discovery.next().now_or_never().is_none());
    }

    /// Otherwise a workspace that is bound and unbound again and again leaves a connection each time.
    #[tokio::test]
    async fn a_closed_connection_is_gone_and_its_address_can_be_opened_again() {
        let mut connections = Connections::start(&"kcp".into(), AccessPolicy::default());
        let access = || -> Access {
            let server = http::Uri::from_static("https://127.0.0.1:1");
            let credentials = StaticCredential::new(Credential::token("token"));
            EndpointAccess::new(Endpoint::new(server), credentials).into()
        };
        let other = connections.open("other", access()).await.unwrap();
        let first = connections.open("a", access()).await.unwrap();
        connections.close(first.name());
        let second = connections.open("a", access()).await.unwrap();
        assert!(!second.is_same(&first));
        eventually(Duration::from_secs(60), "the closed connection is gone", || {
            connections.fleet.get(first.name().as_str()).is_err()
        })
        .await;
        for open in [&other, &second] {
            assert!(
                connections
                    .fleet
                    .get(open.name().as_str())
                    .is_ok_and(|now| now.is_same(open))
            );
        }
    }
}
