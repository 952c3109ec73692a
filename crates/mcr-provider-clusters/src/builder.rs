use std::sync::Arc;

use mcr_core::ClusterSpec;

use crate::{provider::ClustersProvider, registry::Registry};

/// Builds a [`ClustersProvider`]. [`ClustersProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct ClustersProviderBuilder {
    name: Arc<str>,
    clusters: Vec<ClusterSpec>,
}

impl ClustersProvider {
    /// A provider named `clusters`. It has no clusters yet.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder, to set another name or initial clusters.
    pub fn builder() -> ClustersProviderBuilder {
        ClustersProviderBuilder {
            name: "clusters".into(),
            clusters: Vec::new(),
        }
    }
}

impl Default for ClustersProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl ClustersProviderBuilder {
    /// Sets the provider's name. Default: `clusters`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a cluster that exists from the start. A later cluster with the same name replaces an earlier one.
    #[must_use]
    pub fn cluster(mut self, spec: ClusterSpec) -> Self {
        self.clusters.push(spec);
        self
    }

    /// Builds the provider.
    pub fn build(self) -> ClustersProvider {
        let registry = Arc::new(Registry::default());
        for spec in self.clusters {
            registry.add(spec);
        }
        ClustersProvider {
            name: self.name,
            registry,
        }
    }
}
