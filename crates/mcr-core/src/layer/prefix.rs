use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::{
    doctor::{Advice, Described, Doctor, Examiner, Finding, Hub, InHub, Obstacle, Values},
    provider::{BrokenCluster, Change, Discovery, DiscoverySettings, Provider},
};
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

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let inner = self.inner.doctor()?;
        let prefix = self.prefix.clone();
        Some(Arc::new(PrefixDoctor { prefix, inner }))
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

/// The inner doctor, which is asked about clusters under their inner names.
struct PrefixDoctor {
    prefix: String,
    inner: Arc<dyn Doctor>,
}

impl PrefixDoctor {
    fn inner_name<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.prefix).unwrap_or(name)
    }

    fn inner_cluster<'a>(&self, cluster: &Described<'a>) -> Described<'a> {
        let name = self.inner_name(cluster.name);
        Described { name, ..*cluster }
    }
}

impl Doctor for PrefixDoctor {
    fn advice(&self) -> &'static [Advice] {
        self.inner.advice()
    }
    fn check(&self) -> &'static str {
        self.inner.check()
    }
    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let cluster = cluster.map(|cluster| self.inner_cluster(cluster));
        self.inner.values(cluster.as_ref())
    }
    fn display_name(&self) -> &'static str {
        self.inner.display_name()
    }
    fn files(&self) -> Vec<Finding> {
        self.inner.files()
    }
    fn hub(&self) -> Option<&Hub> {
        self.inner.hub()
    }
    fn object_locations(&self, cluster: &str) -> Vec<(Option<String>, String)> {
        self.inner.object_locations(self.inner_name(cluster))
    }
    fn obstacle<'a>(&'a self, of: InHub<'a>, ask: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        self.inner.obstacle(of, ask)
    }
    fn source<'a>(&'a self, ask: &'a dyn Examiner) -> BoxFuture<'a, Vec<Finding>> {
        self.inner.source(ask)
    }
    fn ready(&self, cluster: &Described<'_>) -> Option<Finding> {
        self.inner.ready(&self.inner_cluster(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names that it is asked about.
    struct Names;
    impl Doctor for Names {
        fn advice(&self) -> &'static [Advice] {
            &[]
        }
        fn values(&self, cluster: Option<&Described<'_>>) -> Values {
            cluster
                .map(|cluster| ("name", cluster.name.to_owned()))
                .into_iter()
                .collect()
        }
    }
    impl Provider for Names {
        fn name(&self) -> &str {
            "names"
        }
        fn discover(&self, _: CancellationToken) -> Discovery {
            futures::stream::pending().boxed()
        }
        fn doctor(&self) -> Option<Arc<dyn Doctor>> {
            Some(Arc::new(Self))
        }
    }

    #[test]
    fn doctor_is_asked_about_the_names_without_the_prefix() {
        let doctor = prefix("kind#", Names).doctor().unwrap();
        let cluster = Described {
            name: "kind#dev",
            identity: None,
            properties: &Default::default(),
            reason: None,
            broken: None,
        };
        assert_eq!(doctor.values(Some(&cluster))["name"], "dev");
        assert_eq!(doctor.object_locations("kind#dev")[1].1, "dev");
    }

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
