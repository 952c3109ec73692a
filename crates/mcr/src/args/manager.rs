//! The flags for the manager.

use std::net::SocketAddr;

use crate::{LeaderElection, Manager, ManagerBuilder};

/// The options of the manager.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Operation")]
#[non_exhaustive]
pub struct ManagerArgs {
    /// Serve /clusters, /metrics, /healthz and /readyz there, for example at 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<SocketAddr>,
    /// Reconcile only while this process holds the Lease of this name; other replicas with the same flag are standbys
    #[arg(long, value_name = "LEASE")]
    pub leader_election: Option<String>,
}

impl ManagerArgs {
    /// Starts to build a manager, which serves at the address of `--serve`, and elects a leader with the Lease of
    /// `--leader-election`.
    pub fn manager(&self) -> ManagerBuilder {
        let mut manager = Manager::builder();
        if let Some(address) = self.serve {
            manager = manager.serve(address);
        }
        match &self.leader_election {
            Some(lease) => manager.leader_election(LeaderElection::new(lease)),
            None => manager,
        }
    }
}
