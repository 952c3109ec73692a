use std::sync::Arc;

use futures::{StreamExt, stream};
use mcr_core::{Discovery, DiscoverySettings, Provider};
use tokio_util::sync::CancellationToken;

use crate::{discovery::Running, handle::MultiHandle, registry::Registry};

/// A provider that combines several providers; see the [documentation of the crate](crate).
///
/// Clones share their children.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends the discoveries of all children.
/// The children remain for the next discovery.
#[derive(Clone, Debug)]
pub struct MultiProvider {
    pub(crate) name: Arc<str>,
    pub(crate) registry: Arc<Registry>,
}

impl MultiProvider {
    /// The handle that adds and removes children. Get it before you give the provider to the fleet.
    pub fn handle(&self) -> MultiHandle {
        MultiHandle(self.registry.clone())
    }
}

impl Provider for MultiProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        let children = self.registry.children.borrow().clone();
        if children.is_empty() {
            return "no provider. To add one, call MultiHandle::add".to_owned();
        }
        let searched = children
            .iter()
            .map(|(name, child)| format!("{name}: {}", child.provider.searched()));
        searched.collect::<Vec<_>>().join("; ")
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let registry = self.registry.clone();
        let settings = settings.clone();
        let start = move || (Running::start(&registry, stop.child_token(), settings), stop);
        // Children start when the stream is first polled, because their discoveries need a runtime.
        stream::once(async move { start() })
            .flat_map(|(running, stop)| {
                stream::unfold((running, stop), async |(mut running, stop)| {
                    let change = stop.run_until_cancelled(running.next()).await?;
                    Some((Ok(change), (running, stop)))
                })
            })
            .boxed()
    }
}
