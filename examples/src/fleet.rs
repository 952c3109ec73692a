//! A program over a fleet.

use std::net::SocketAddr;

use mcr::{ClusterSelector, Manager, ManagerBuilder};

use crate::ClusterArgs;

/// Flags of a program that works on every cluster of a fleet.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FleetArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub clusters: ClusterArgs,
    /// Also work on a cluster that is named hub
    #[arg(long, help_heading = "Clusters")]
    pub include_hub: bool,
    /// Serve /clusters, /metrics, /healthz and /readyz there, for example at 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub serve: Option<SocketAddr>,
}

impl FleetArgs {
    /// Which clusters to work on.
    pub fn selector(&self) -> ClusterSelector {
        if self.include_hub {
            ClusterSelector::all()
        } else {
            ClusterSelector::default()
        }
    }

    /// A manager over the clusters that were asked for.
    ///
    /// # Errors
    /// If a flag makes no sense, or the provider was not compiled in.
    pub async fn manager(&self) -> anyhow::Result<ManagerBuilder> {
        let manager = Manager::builder()
            .provider(self.clusters.provider().await?)
            .settings(|settings| self.clusters.settings(settings));
        Ok(match self.serve {
            Some(address) => manager.serve(address),
            None => manager,
        })
    }
}
