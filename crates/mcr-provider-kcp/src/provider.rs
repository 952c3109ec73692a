use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use mcr_core::{BoxError, Discovery, DiscoverySettings, Provider, doctor::Doctor};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, discovery::Running, doctor::KcpDoctor, paths::Paths};

/// A provider that makes each workspace that binds an APIExport a cluster of the fleet.
///
/// # Cancellation
/// Dropping a discovery, or cancelling its token, ends its watches and closes its connections.
#[derive(Debug, Clone)]
pub struct KcpProvider {
    pub(crate) config: Arc<Config>,
}

impl KcpProvider {
    /// The paths of its workspaces, in both directions. Take the handle before the fleet takes the provider.
    pub fn paths(&self) -> Paths {
        self.config.paths.clone()
    }
}

impl Provider for KcpProvider {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        Some(Arc::new(KcpDoctor::new(self.config.clone())))
    }

    fn searched(&self) -> String {
        format!(
            "workspaces of kcp that bind the API of {}. To add a cluster, create an APIBinding in a workspace; if there is one, \
             check its status, and whether the endpoint slice has endpoints",
            self.config.api
        )
    }

    /// Starts a discovery. Poll it within a tokio runtime with an enabled time driver.
    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        discover(&self.config, stop, settings)
    }
}

/// Starts a discovery.
pub(crate) fn discover(
    config: &Arc<Config>,
    stop: CancellationToken,
    settings: &DiscoverySettings,
) -> Discovery {
    let start = Running::start(config.clone(), settings.clone());
    let changes = async {
        let running = start.await?;
        Ok::<_, BoxError>(stream::try_unfold(running, async |mut running| {
            let change = running.next().await?;
            Ok::<_, BoxError>(Some((change, running)))
        }))
    };
    stream::once(changes)
        .try_flatten()
        .take_until(stop.cancelled_owned())
        .boxed()
}
