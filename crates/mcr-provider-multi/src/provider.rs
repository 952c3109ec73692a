use std::{fmt, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{Discovery, DiscoverySettings, Provider};
use tokio_util::sync::CancellationToken;

use crate::{
    discovery::Running,
    handle::MultiHandle,
    registry::{DesiredChild, Registry},
};

/// A provider that combines several; see the [documentation of the crate](crate).
///
/// Clones share their children.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, ends the discoveries of all children.
/// The children remain for the next discovery.
#[derive(Clone)]
pub struct MultiProvider {
    pub(crate) name: Arc<str>,
    pub(crate) registry: Arc<Registry>,
}

impl MultiProvider {
    /// The handle that adds and removes children. Take it before the fleet takes the provider.
    pub fn handle(&self) -> MultiHandle {
        MultiHandle(self.registry.clone())
    }
}

impl fmt::Debug for MultiProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiProvider")
            .field("name", &self.name)
            .field("separator", &self.registry.options.separator)
            .field("children", &self.registry.names())
            .finish()
    }
}

impl Provider for MultiProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        let children = self.registry.desired(None).map(|(_, children)| children);
        let child = |child: DesiredChild| format!("{}: {}", child.name, child.provider.searched());
        match children.unwrap_or_default() {
            none if none.is_empty() => "no provider. To add one, call MultiHandle::add".to_owned(),
            children => children.into_iter().map(child).collect::<Vec<_>>().join("; "),
        }
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let registry = self.registry.clone();
        let settings = settings.clone();
        let start = move || (Running::start(registry, stop.child_token(), settings), stop);
        // Children start when the stream is first polled, as their discoveries need a runtime then and not before.
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere(&'static str);

    impl Provider for Nowhere {
        fn name(&self) -> &str {
            self.0
        }
        fn discover(&self, _: CancellationToken) -> Discovery {
            stream::pending().boxed()
        }
        fn searched(&self) -> String {
            format!("under the {}", self.0)
        }
    }

    #[test]
    fn the_log_reports_where_each_child_looks() {
        let provider = MultiProvider::builder().build().unwrap();
        assert_eq!(
            provider.searched(),
            "no provider. To add one, call MultiHandle::add"
        );
        provider.handle().add(Nowhere("table")).unwrap();
        provider.handle().add_as("b", Nowhere("bed")).unwrap();
        assert_eq!(provider.searched(), "b: under the bed; table: under the table");
    }
}
