use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::provider::{BrokenCluster, Change, Discovery, DiscoverySettings, Provider};
use mcr_access::{BoxError, ClusterName};

/// A provider that puts a prefix in front of the names of another. [`prefix`] creates it.
#[derive(Debug, Clone)]
pub struct Prefix<P> {
    prefix: String,
    inner: P,
}

/// Puts `prefix` in front of the names of all clusters of a provider: `prefix("kind#", kind)` turns `dev` into `kind#dev`.
///
/// A cluster whose name with the prefix is not a valid [`ClusterName`] is logged as an error and left out. The other clusters are
/// announced.
///
/// ```
/// use mcr_core::{Provider, layer};
/// # fn example(kind: impl Provider) {
/// let small = layer::filter(kind, |spec| spec.labels.get("size").is_some_and(|size| size == "small"));
/// let provider = layer::prefix("kind#", small);
/// # }
/// ```
pub fn prefix<P: Provider>(prefix: impl Into<String>, inner: P) -> Prefix<P> {
    Prefix {
        prefix: prefix.into(),
        inner,
    }
}

impl<P: Provider> Provider for Prefix<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn searched(&self) -> String {
        self.inner.searched()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let prefix = self.prefix.clone();
        self.inner
            .discover_with(stop, settings)
            .filter_map(move |item| std::future::ready(rename(&prefix, item).transpose()))
            .boxed()
    }
}

fn rename(prefix: &str, item: Result<Change, BoxError>) -> Result<Option<Change>, BoxError> {
    let named = |name: &ClusterName| match ClusterName::new(format!("{prefix}{name}")) {
        Ok(name) => Some(name),
        Err(error) => {
            tracing::error!(%error, cluster = %name, prefix, "cluster left out: its name with the prefix is not a valid cluster name");
            None
        }
    };
    Ok(match item? {
        Change::Upsert(mut spec) => named(&spec.name).map(|name| {
            spec.name = name;
            Change::Upsert(spec)
        }),
        Change::Broken(broken) => {
            named(&broken.name).map(|name| Change::Broken(BrokenCluster { name, ..broken }))
        }
        Change::Remove(name) => named(&name).map(Change::Remove),
        Change::Synced => Some(Change::Synced),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_renamed() {
        let name = |s: &str| ClusterName::new(s).unwrap();
        let renamed = rename("kind#", Ok(Change::Remove(name("dev")))).unwrap();
        assert!(matches!(renamed, Some(Change::Remove(n)) if n == "kind#dev"));
        let broken = BrokenCluster::new(name("dev"), "file x", "half-written");
        let renamed = rename("kind#", Ok(Change::Broken(broken))).unwrap();
        assert!(matches!(renamed, Some(Change::Broken(b)) if b.name == "kind#dev"));
        assert!(matches!(
            rename("kind#", Ok(Change::Synced)).unwrap(),
            Some(Change::Synced)
        ));
    }

    #[test]
    fn a_name_too_long_with_its_prefix_is_left_out() {
        let name = ClusterName::new("x".repeat(ClusterName::MAX_LEN)).unwrap();
        assert!(rename("kind#", Ok(Change::Remove(name))).unwrap().is_none());
    }
}
