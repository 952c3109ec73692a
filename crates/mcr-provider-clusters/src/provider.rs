use std::{fmt, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{Discovery, Provider};
use tokio_util::sync::CancellationToken;

use crate::{
    handle::ClustersHandle,
    registry::{Listener, Registry},
};

/// A provider whose clusters your own code adds and removes, through a [`ClustersHandle`].
///
/// Clones share their clusters.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends it at once. The clusters are kept
/// for the next discovery.
#[derive(Clone)]
pub struct ClustersProvider {
    pub(crate) name: Arc<str>,
    pub(crate) registry: Arc<Registry>,
}

impl ClustersProvider {
    /// The handle that adds and removes clusters. Get it before you give the provider to the fleet.
    pub fn handle(&self) -> ClustersHandle {
        ClustersHandle(self.registry.clone())
    }
}

impl fmt::Debug for ClustersProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersProvider")
            .field("name", &self.name)
            .field("clusters", &self.registry.names())
            .finish()
    }
}

impl Provider for ClustersProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        stream::unfold(Listener::new(self.registry.clone()), async |mut listener| {
            let change = listener.next().await;
            Some((Ok(change), listener))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}
