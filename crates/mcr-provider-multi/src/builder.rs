use std::{fmt, sync::Arc, time::Duration};

use mcr_core::Provider;

use crate::{
    children::Options, error::MultiError, names::check_separator, provider::MultiProvider, registry::Registry,
};

/// Builds a [`MultiProvider`]. [`MultiProvider::builder`] creates it.
pub struct MultiProviderBuilder {
    name: Arc<str>,
    options: Options,
    children: Vec<(Arc<str>, Arc<dyn Provider>)>,
}

impl MultiProvider {
    /// A builder, to add children and to set another name or separator.
    pub fn builder() -> MultiProviderBuilder {
        MultiProviderBuilder {
            name: "multi".into(),
            options: Options {
                separator: "#".into(),
                removal_grace: Duration::from_secs(30),
                sync_timeout: Duration::from_secs(30),
            },
            children: Vec::new(),
        }
    }
}

impl MultiProviderBuilder {
    /// Sets the provider's name. Default: `multi`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the text between child and cluster in the name of a cluster. Default: `#`.
    #[must_use]
    pub fn separator(mut self, separator: impl Into<Arc<str>>) -> Self {
        self.options.separator = separator.into();
        self
    }

    /// Adds a child that exists from the start, under the name of its provider.
    #[must_use]
    pub fn child(self, provider: impl Provider) -> Self {
        let name: Arc<str> = provider.name().into();
        self.child_as(name, provider)
    }

    /// Adds a child that exists from the start, under another name.
    #[must_use]
    pub fn child_as(mut self, name: impl Into<Arc<str>>, provider: impl Provider) -> Self {
        self.children.push((name.into(), Arc::new(provider)));
        self
    }

    /// Sets how long a cluster stays if its child was restarted and no longer announces it. Default: 30 s.
    #[must_use]
    pub fn removal_grace(mut self, grace: Duration) -> Self {
        self.options.removal_grace = grace;
        self
    }

    /// Sets how long `Synced` waits for a child that fails or announces nothing. Default: 30 s.
    ///
    /// The timeout removes no cluster: the known clusters of the child stay until the child has synced.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.options.sync_timeout = timeout;
        self
    }

    /// Builds the provider. Starts no child yet.
    ///
    /// # Errors
    /// [`MultiError`] if the separator is empty or not printable, or the name of a child is taken or unusable.
    pub fn build(self) -> Result<MultiProvider, MultiError> {
        check_separator(&self.options.separator)?;
        let registry = Registry::new(self.options);
        for (name, provider) in self.children {
            registry.add(name, provider)?;
        }
        Ok(MultiProvider {
            name: self.name,
            registry: Arc::new(registry),
        })
    }
}

impl fmt::Debug for MultiProviderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children: Vec<&str> = self.children.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("MultiProviderBuilder")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("children", &children)
            .finish()
    }
}
