use std::sync::Arc;

use crate::provider::NopProvider;

/// Builds a [`NopProvider`]. [`NopProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct NopProviderBuilder {
    name: Arc<str>,
}

impl NopProvider {
    /// A provider without clusters, named `nop`.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder, to set another name.
    pub fn builder() -> NopProviderBuilder {
        NopProviderBuilder { name: "nop".into() }
    }
}

impl Default for NopProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl NopProviderBuilder {
    /// Sets the provider's name. Default: `nop`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Builds the provider.
    pub fn build(self) -> NopProvider {
        NopProvider { name: self.name }
    }
}
