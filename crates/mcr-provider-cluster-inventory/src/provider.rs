use std::{fmt, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{Discovery, DiscoverySettings, Provider, doctor::Doctor};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    doctor::InventoryDoctor,
    running::{Running, served},
};

/// A provider that finds clusters in ClusterProfiles; see the [documentation of the crate](crate).
///
/// Clones share their memory of the clusters that they have announced.
///
/// # Cancellation
/// A discovery has a task for each of its watches: of ClusterProfiles, Secrets and PlacementDecisions, in each namespace. They end
/// when the discovery is dropped or its token is cancelled. If the discovery is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Clone)]
pub struct ClusterInventoryProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
}

impl fmt::Debug for ClusterInventoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterInventoryProvider")
            .field("name", &self.name)
            .field("profiles", &self.config.in_words())
            .field("selection", &self.config.selection)
            .field("placement", &self.config.placement)
            .field("access", &self.config.access)
            .finish()
    }
}

impl Provider for ClusterInventoryProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let config = &self.config;
        let (client, namespaces) = (config.client.clone(), config.namespaces.clone());
        let plugins = config.access.providers().map(|plugins| &**plugins);
        let doctor = InventoryDoctor::new(client, namespaces, config.labels.clone(), plugins);
        Some(Arc::new(doctor))
    }

    fn searched(&self) -> String {
        let mut rights = "ClusterProfiles".to_owned();
        let mut chosen = String::new();
        if self.config.access.consumer().is_some() {
            rights.push_str(" and Secrets");
        }
        if let Some(request) = self.config.decisions().first() {
            rights.push_str(" and PlacementDecisions");
            chosen = format!(", named by {request} (see the option `placement`)");
        }
        format!(
            "{}{}{chosen} of the hub, that are ready and tell how to reach their cluster. A cluster manager, such as Open Cluster \
             Management, creates a ClusterProfile for each of its clusters; if there is one, check its namespace and labels, \
             and whether the hub's credentials may list and watch {rights} there",
            self.config.in_words(),
            self.config.selection.in_words()
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let start = Step::Ask(self.config.clone(), settings.clone());
        stream::unfold(start, async |step| match step {
            Step::Ask(config, settings) => Some(match served(&config).await {
                // No change yet: the stream goes on at once.
                Ok(served) => (
                    None,
                    Step::Follow(Box::new(Running::start(config, served, settings))),
                ),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::Follow(mut running) => Some(match running.next().await {
                Ok(change) => (Some(Ok(change)), Step::Follow(running)),
                Err(error) => (Some(Err(error)), Step::End),
            }),
            Step::End => None,
        })
        .filter_map(async |item| item)
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}

enum Step {
    Ask(Arc<Config>, DiscoverySettings),
    Follow(Box<Running>),
    /// The discovery has ended with an error.
    End,
}
