//! A connection to one cluster, for commands that read or write there.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use kube::Client;
use mcr_core::{
    Access, Change, Cluster, ClusterName, ClusterSpec, ClusterState, Discovery, Fleet, FleetEvent, Provider,
    ProxyEnvironment, explain_error,
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A connection to one cluster.
///
/// Implemented as a fleet of one cluster. So credential plugins have a deadline, answers of servers stay out of the
/// log, and errors have the same texts as in a controller.
#[derive(Debug)]
pub(crate) struct Session {
    cluster: Cluster,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// A provider of one cluster that never changes.
struct Only {
    name: ClusterName,
    access: Access,
}

impl Provider for Only {
    fn name(&self) -> &str {
        "mcr"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let spec = ClusterSpec::new(self.name.clone(), self.access.clone());
        stream::iter([Ok(Change::Upsert(spec)), Ok(Change::Synced)])
            .chain(stream::pending())
            .take_until(stop.cancelled_owned())
            .boxed()
    }
}

impl Session {
    /// Connects to a cluster. `name` appears in errors.
    pub(crate) async fn open(
        name: &str,
        access: impl Into<Access>,
        limit: Duration,
        proxies: Option<Arc<ProxyEnvironment>>,
    ) -> anyhow::Result<Self> {
        let only = Only {
            name: ClusterName::new(name).context("the context's name can't be shown")?,
            access: access.into(),
        };
        let fleet = Fleet::builder()
            .provider(only)
            .transport(|transport| transport.proxies = proxies)
            .settings(|settings| {
                settings.drain_grace = Duration::from_secs(1);
                settings.probe_timeout = limit;
            })
            .build();
        let mut events = fleet.subscribe();
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (fleet, stop) = (fleet.clone(), stop.clone());
            async move { fleet.run(stop).await }
        });
        let stop = stop.drop_guard();
        let decided = async {
            let cluster = loop {
                if let FleetEvent::Engaged(cluster) = events.next().await {
                    break cluster;
                }
            };
            let decided =
                |state: &ClusterState| !matches!(state, ClusterState::Discovered | ClusterState::Connecting);
            (cluster.wait_for(decided).await, cluster)
        };
        let decided = timeout(limit, decided).await;
        match decided {
            Ok((ClusterState::Ready, cluster)) => Ok(Self { cluster, stop, task }),
            Ok((state, _)) => {
                let reason = state.reason().unwrap_or("it left").to_owned();
                drop(stop);
                task.await?;
                bail!("{name}: {reason}")
            }
            Err(_) => {
                drop(stop);
                task.await?;
                bail!("{name}: no answer within {}", crate::values::seconds(limit))
            }
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Ends the connection.
    pub(crate) async fn close(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}

/// The error of a request, as a sentence.
pub(crate) fn text_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("{} {}", status.code, status.reason)
        }
        kube::Error::Api(status) => status.message.clone(),
        error => explain_error(error),
    }
}

/// Whether an API server refused the request with 403.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
