use std::sync::Arc;

use mcr_core::ClusterSpec;

use crate::SingleProvider;

/// Builds a [`SingleProvider`]; made by [`SingleProvider::builder`].
#[derive(Debug, Clone)]
pub struct SingleProviderBuilder {
    name: Arc<str>,
    spec: ClusterSpec,
}

impl SingleProviderBuilder {
    pub(crate) fn new(spec: ClusterSpec) -> Self {
        Self {
            name: "single".into(),
            spec,
        }
    }

    /// Sets the provider's name. Default: `single`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Declares what makes the cluster this cluster; see [`ClusterSpec::identity`]. Default: the fleet finds out.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<Arc<str>>) -> Self {
        self.spec = self.spec.identity(identity);
        self
    }

    /// Adds a label to select the cluster by, or replaces it.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec = self.spec.label(key, value);
        self
    }

    /// Adds a property, or replaces it.
    #[must_use]
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec = self.spec.property(key, value);
        self
    }

    /// Builds the provider.
    pub fn build(self) -> SingleProvider {
        SingleProvider {
            name: self.name,
            spec: self.spec,
        }
    }
}
