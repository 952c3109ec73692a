use std::sync::Arc;

use mcr_core::ClusterSpec;

use crate::{ClustersProvider, registry::Registry};

/// Builds a [`ClustersProvider`]; made by [`ClustersProvider::builder`].
#[derive(Debug, Clone)]
pub struct ClustersProviderBuilder {
    name: Arc<str>,
    clusters: Vec<ClusterSpec>,
}

impl ClustersProviderBuilder {
    pub(crate) fn new() -> Self {
        Self {
            name: "clusters".into(),
            clusters: Vec::new(),
        }
    }

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
