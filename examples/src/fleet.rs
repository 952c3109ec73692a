//! A program over a fleet.

use mcr::{ClusterSelector, ManagerBuilder, args::ManagerArgs};

use crate::ClusterArgs;

/// Which clusters to work on.
pub fn selector(include_hub: bool) -> ClusterSelector {
    if include_hub {
        ClusterSelector::all()
    } else {
        ClusterSelector::default()
    }
}

/// Flags of a program whose manager works on the clusters of a fleet.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FleetArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub clusters: ClusterArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub manager: ManagerArgs,
}

impl FleetArgs {
    /// A manager over the clusters that were asked for.
    ///
    /// # Errors
    /// If a flag makes no sense, or the provider was not compiled in.
    pub async fn manager(&self) -> anyhow::Result<ManagerBuilder> {
        let provider = self.clusters.provider().await?;
        let manager = self.manager.manager_in(&self.clusters.hub).provider(provider);
        Ok(manager.settings(|settings| self.clusters.settings(settings)))
    }

    /// As [`manager`](Self::manager), with the hub as a further cluster, which is named hub.
    ///
    /// # Errors
    /// If a flag makes no sense, the provider was not compiled in, or no hub was found.
    pub async fn manager_with_hub(&self) -> anyhow::Result<ManagerBuilder> {
        let hub = self.clusters.hub.hub()?;
        let members = hub.members_of(self.clusters.provider().await?);
        let manager = self.manager.manager_in(&self.clusters.hub);
        let manager = manager.provider(hub).provider(members);
        Ok(manager.settings(|settings| self.clusters.settings(settings)))
    }
}
