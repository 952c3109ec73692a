use std::{collections::HashSet, sync::Arc};

use futures::StreamExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    doctor::Doctor,
    provider::{BrokenCluster, Change, Discovery, DiscoverySettings, Provider},
    spec::ClusterSpec,
};
use mcr_access::ClusterName;

/// A provider that announces some of the clusters of another. [`filter`] creates it.
pub struct Filter<P> {
    keep: Arc<dyn Fn(&ClusterSpec) -> bool + Send + Sync>,
    /// The clusters that pass. A discovery begins with those of the one before, whose description may be broken by now.
    kept: Arc<Mutex<HashSet<ClusterName>>>,
    inner: P,
}

/// Announces only the clusters for which `keep` returns `true`.
///
/// The layer calls `keep` for each spec that the provider announces. A cluster that no longer matches is removed, and a cluster
/// that begins to match is added. A [`Change::Broken`] has no spec to decide by, so it passes only for clusters that matched
/// before.
///
/// ```
/// use mcr_core::{Provider, layer};
/// # fn example(all: impl Provider) {
/// let production = layer::filter(all, |spec| spec.labels.get("env").is_some_and(|env| env == "prod"));
/// # }
/// ```
pub fn filter<P: Provider>(
    inner: P,
    keep: impl Fn(&ClusterSpec) -> bool + Send + Sync + 'static,
) -> Filter<P> {
    Filter {
        keep: Arc::new(keep),
        kept: Arc::default(),
        inner,
    }
}

impl<P: std::fmt::Debug> std::fmt::Debug for Filter<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Provider for Filter<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn searched(&self) -> String {
        format!("what layer::filter keeps of: {}", self.inner.searched())
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        self.inner.doctor()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let keep = self.keep.clone();
        let (kept, mut found) = (self.kept.clone(), Some(HashSet::new()));
        self.inner
            .discover_with(stop, settings)
            .filter_map(move |item| {
                let mut kept = kept.lock();
                if let (
                    Some(found),
                    Ok(Change::Upsert(ClusterSpec { name, .. }) | Change::Broken(BrokenCluster { name, .. })),
                ) = (&mut found, &item)
                {
                    found.insert(name.clone());
                }
                if matches!(item, Ok(Change::Synced))
                    && let Some(found) = found.take()
                {
                    kept.retain(|name| found.contains(name));
                }
                let out = match item {
                    Ok(Change::Upsert(spec)) if keep(&spec) => {
                        kept.insert(spec.name.clone());
                        Some(Ok(Change::Upsert(spec)))
                    }
                    // This discovery can't know which clusters an earlier one announced, so it removes every cluster that
                    // does not match. Removing an unknown cluster is harmless.
                    Ok(Change::Upsert(spec)) => {
                        kept.remove(&spec.name);
                        Some(Ok(Change::Remove(spec.name)))
                    }
                    Ok(Change::Broken(broken)) => {
                        kept.contains(&broken.name).then_some(Ok(Change::Broken(broken)))
                    }
                    Ok(Change::Remove(name)) => {
                        kept.remove(&name);
                        Some(Ok(Change::Remove(name)))
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
    use futures::stream;

    use super::*;
    use crate::access::Access;
    use mcr_access::Trust;

    /// The changes of one discovery after the other.
    struct Script(Mutex<Vec<Vec<Change>>>);
    impl Provider for Script {
        fn name(&self) -> &str {
            "script"
        }
        fn discover(&self, _: CancellationToken) -> Discovery {
            stream::iter(self.0.lock().remove(0).into_iter().map(Ok)).boxed()
        }
    }

    fn spec(name: &str, env: &str) -> ClusterSpec {
        let access = Access::kubeconfig(b"".as_slice(), Trust::Trusted);
        ClusterSpec::new(ClusterName::new(name).unwrap(), access).label("env", env)
    }

    #[tokio::test]
    async fn clusters_come_and_go_with_what_they_match() {
        let broken = |name| {
            Change::Broken(BrokenCluster::new(
                ClusterName::new(name).unwrap(),
                "an object",
                "torn",
            ))
        };
        let script = Script(Mutex::new(vec![
            vec![
                Change::Upsert(spec("a", "prod")),
                Change::Upsert(spec("b", "dev")),
                Change::Synced,
                Change::Upsert(spec("a", "dev")),
                Change::Upsert(spec("b", "prod")),
            ],
            vec![broken("a"), broken("b"), Change::Synced],
            vec![Change::Synced, broken("b")],
        ]));
        let provider = filter(script, |spec| spec.labels["env"] == "prod");
        let discoveries = [(); 3].map(|()| provider.discover(CancellationToken::new()));
        let seen: Vec<String> = stream::iter(discoveries)
            .flatten()
            .map(|change| match change.unwrap() {
                Change::Upsert(spec) => format!("+{}", spec.name),
                Change::Remove(name) => format!("-{name}"),
                Change::Synced => "synced".into(),
                Change::Broken(broken) => format!("!{}", broken.name),
            })
            .collect()
            .await;
        assert_eq!(seen, ["+a", "-b", "synced", "-a", "+b", "!b", "synced", "synced"]);
    }
}
