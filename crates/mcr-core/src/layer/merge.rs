use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::provider::{Change, Discovery, DiscoverySettings, Provider};
use mcr_access::BoxError;

/// A provider that combines several. [`merge`] creates it.
pub struct Merge {
    name: String,
    children: Vec<Arc<dyn Provider>>,
}

/// Combines several providers into one.
///
/// The merged provider is synced once all its children are synced. The layer does not change names: put a
/// [`prefix`](super::prefix) on each child if two children could announce the same name. If the discovery of one child fails,
/// the merged discovery fails too, and the fleet starts all children again. To keep children independent of each other, give
/// each of them to the fleet as a provider of its own; only then does `mcr doctor` have the advice of its provider, too.
///
/// ```
/// use mcr_core::{Provider, layer};
/// # fn example(kind: impl Provider, files: impl Provider) {
/// let all = layer::merge("all", [
///     Box::new(layer::prefix("kind#", kind)) as Box<dyn Provider>,
///     Box::new(layer::prefix("file#", files)),
/// ]);
/// # }
/// ```
pub fn merge(name: impl Into<String>, children: impl IntoIterator<Item = Box<dyn Provider>>) -> Merge {
    Merge {
        name: name.into(),
        children: children.into_iter().map(Arc::from).collect(),
    }
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let children: Vec<&str> = self.children.iter().map(|child| child.name()).collect();
        f.debug_struct("Merge")
            .field("name", &self.name)
            .field("children", &children)
            .finish()
    }
}

/// A child that ends before it was stopped ends the merged discovery. Otherwise changes of its clusters would be missed without
/// notice. The pause keeps a child that ends at once from being started in a tight loop.
const CHILD_ENDED_PAUSE: Duration = Duration::from_secs(1);

impl Provider for Merge {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        let child = |child: &Arc<dyn Provider>| format!("{}: {}", child.name(), child.searched());
        self.children.iter().map(child).collect::<Vec<_>>().join("; ")
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let mut waiting = self.children.len();
        if waiting == 0 {
            let idle = stream::pending().take_until(stop.cancelled_owned());
            return stream::iter([Ok(Change::Synced)]).chain(idle).boxed();
        }
        let children = self.children.iter().map(|child| {
            let name = child.name().to_owned();
            let stopped = stop.clone();
            let ended = stream::once(async move {
                if stopped.is_cancelled() {
                    return None;
                }
                tokio::time::sleep(CHILD_ENDED_PAUSE).await;
                Some(Err::<Change, BoxError>(
                    format!("provider {name:?} ended its discovery").into(),
                ))
            })
            .filter_map(std::future::ready);
            child.discover_with(stop.clone(), settings).chain(ended)
        });
        let mut synced = vec![false; self.children.len()];
        stream::select_all(
            children
                .enumerate()
                .map(|(i, child)| child.map(move |item| (i, item)).boxed()),
        )
        .filter_map(move |(i, item)| {
            let out = match item {
                Ok(Change::Synced) if synced[i] => None,
                Ok(Change::Synced) => {
                    synced[i] = true;
                    waiting -= 1;
                    (waiting == 0).then_some(Ok(Change::Synced))
                }
                other => Some(other),
            };
            std::future::ready(out)
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcr_access::ClusterName;

    struct Script(&'static str, Vec<Change>);
    impl Provider for Script {
        fn name(&self) -> &str {
            self.0
        }
        fn discover(&self, _: CancellationToken) -> Discovery {
            stream::iter(self.1.clone().into_iter().map(Ok)).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn synced_once_all_children_are_and_a_child_that_ends_is_an_error() {
        let remove = |n: &str| Change::Remove(ClusterName::new(n).unwrap());
        let merged = merge(
            "all",
            [
                Box::new(Script("one", vec![Change::Synced, Change::Synced, remove("a")]))
                    as Box<dyn Provider>,
                Box::new(Script("two", vec![remove("b"), Change::Synced])),
            ],
        );
        let seen: Vec<_> = merged.discover(CancellationToken::new()).take(4).collect().await;
        let synced = seen.iter().filter(|c| matches!(c, Ok(Change::Synced))).count();
        assert_eq!(synced, 1);
        let error = seen
            .iter()
            .find_map(|c| c.as_ref().err())
            .expect("an ended child is an error");
        assert!(error.to_string().contains("ended its discovery"), "{error}");
    }

    #[tokio::test]
    async fn no_children_is_synced_at_once() {
        let stop = CancellationToken::new();
        let mut discovery = merge("none", []).discover(stop.clone());
        assert!(matches!(discovery.next().await, Some(Ok(Change::Synced))));
        stop.cancel();
        assert!(discovery.next().await.is_none());
    }
}
