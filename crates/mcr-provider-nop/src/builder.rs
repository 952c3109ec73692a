use std::sync::Arc;

use crate::NopProvider;

/// Builds a [`NopProvider`]; made by [`NopProvider::builder`].
#[derive(Debug, Clone)]
pub struct NopProviderBuilder {
    name: Arc<str>,
}

impl NopProviderBuilder {
    pub(crate) fn new() -> Self {
        Self { name: "nop".into() }
    }

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
