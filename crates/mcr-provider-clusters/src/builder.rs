use std::sync::Arc;

use mcr_core::ClusterSpec;

use crate::{ClustersProvider, registry::Registry};

/// Builds a [`ClustersProvider`]; made by [`ClustersProvider::builder`].
#[derive(Debug, Clone)]
pub struct ClustersProviderBuilder {
    name: Arc<str>,
    clusters: Vec<ClusterSpec>,
}

impl ClustersProvider {
    /// A provider without clusters so far, named `clusters`.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder, to give it another name or clusters to begin with.
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

    /// Adds a cluster that is there from the beginning. Of two with the same name the last counts.
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
