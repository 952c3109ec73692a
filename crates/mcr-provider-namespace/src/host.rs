//! The connection of one discovery to the host cluster.

use futures::{StreamExt, future::BoxFuture, stream};
use mcr_core::{
    Access, AccessPolicy, BoxError, Change, Cluster, ClusterName, ClusterSpec, ClusterState, Discovery,
    Fleet, FleetEvent, FleetEvents, Provider,
};
use tokio_util::sync::CancellationToken;

/// The host cluster, in a fleet of its own that connects to it, probes it and renews its credentials. Dropping this
/// value disconnects.
pub(crate) struct HostCluster {
    pub(crate) cluster: Cluster,
    events: FleetEvents,
    /// The future that runs the fleet. Dropping it ends the fleet.
    running: BoxFuture<'static, ()>,
}

/// A provider of the host cluster only.
struct Only(ClusterSpec);

impl Provider for Only {
    fn name(&self) -> &str {
        "host"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        stream::iter([Ok(Change::Upsert(self.0.clone())), Ok(Change::Synced)])
            .chain(stream::pending())
            .take_until(stop.cancelled_owned())
            .boxed()
    }
}

impl HostCluster {
    /// Connects to the host cluster.
    ///
    /// # Errors
    /// If the host cluster can't be reached, with the reason. The caller tries again.
    pub(crate) async fn connect(
        provider: &str,
        access: Access,
        policy: AccessPolicy,
    ) -> Result<Self, BoxError> {
        let name = ClusterName::new(format!("host of {provider}"))?;
        let fleet = Fleet::builder()
            .provider(Only(ClusterSpec::new(name, access)))
            .settings(|settings| (settings.access_policy, settings.internal) = (policy, true))
            .build();
        let mut events = fleet.subscribe();
        let mut running: BoxFuture<'static, ()> =
            Box::pin(async move { fleet.run(CancellationToken::new()).await });
        let connected = async {
            let cluster = loop {
                if let FleetEvent::Engaged(cluster) = events.next().await {
                    break cluster;
                }
            };
            let reported =
                |state: &ClusterState| !matches!(state, ClusterState::Discovered | ClusterState::Connecting);
            let state = cluster.wait_for(reported).await;
            (cluster, state)
        };
        let (cluster, state) = tokio::select! {
            connected = connected => connected,
            () = &mut running => return Err("the connection to the host cluster has ended".into()),
        };
        match state {
            ClusterState::Ready => Ok(Self {
                cluster,
                events,
                running,
            }),
            ClusterState::Unreachable { reason } => {
                Err(format!("the host cluster can't be reached: {reason}").into())
            }
            state => Err(format!("the host cluster can't be used: {state:?}").into()),
        }
    }

    /// Resolves when another cluster answers at the host's address. Then everything that is known of the host is
    /// invalid. Cancel safe.
    pub(crate) async fn replaced(&mut self) {
        let gone = async { while !matches!(self.events.next().await, FleetEvent::Disengaged { .. }) {} };
        tokio::select! {
            () = gone => {}
            () = &mut self.running => {}
        }
    }
}
