//! The flags for the manager.

use std::{net::SocketAddr, sync::Arc};

use futures::FutureExt;

use super::HubArgs;
use crate::{
    leader::LeaderElection,
    manager::{Manager, ManagerBuilder},
};

/// The options of the manager.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Operation")]
#[non_exhaustive]
pub struct ManagerArgs {
    /// Serve /clusters, /metrics, /healthz and /readyz there, for example at 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<SocketAddr>,
    /// Reconcile only while this process holds the Lease of this name in the hub; other replicas with the same flag and
    /// the same hub are standbys
    #[arg(long, value_name = "LEASE")]
    pub leader_election: Option<String>,
}

impl ManagerArgs {
    /// Starts to build a manager, which serves at the address of `--serve`, and elects a leader with the Lease of
    /// `--leader-election`. The Lease is in the cluster of the Pod, or else in the current context of the kubeconfig.
    pub fn manager(&self) -> ManagerBuilder {
        self.build(|lease| LeaderElection::new(lease))
    }

    /// As [`manager`](Self::manager), with the Lease in this hub.
    pub fn manager_in(&self, hub: &HubArgs) -> ManagerBuilder {
        let hub = hub.clone();
        self.build(|lease| {
            LeaderElection::new(lease).client_from(Arc::new(move || {
                let hub = hub.clone();
                async move {
                    let hub = hub.hub()?;
                    Ok((hub.client().await?, Some(hub.to_string())))
                }
                .boxed()
            }))
        })
    }

    fn build(&self, election: impl FnOnce(&str) -> LeaderElection) -> ManagerBuilder {
        let mut manager = Manager::builder();
        if let Some(address) = self.serve {
            manager = manager.serve(address);
        }
        match &self.leader_election {
            Some(lease) => manager.leader_election(election(lease)),
            None => manager,
        }
    }
}
