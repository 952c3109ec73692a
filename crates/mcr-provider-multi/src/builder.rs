use std::{fmt, sync::Arc, time::Duration};

use mcr_core::Provider;

use crate::{
    MultiError, MultiProvider,
    names::check_separator,
    registry::{Options, Registry},
};

/// Builds a [`MultiProvider`]; made by [`MultiProvider::builder`].
pub struct MultiProviderBuilder {
    name: Arc<str>,
    separator: Arc<str>,
    removal_grace: Duration,
    sync_timeout: Duration,
    children: Vec<(Arc<str>, Arc<dyn Provider>)>,
}

impl MultiProvider {
    /// A builder, to give it children, another name or another separator.
    pub fn builder() -> MultiProviderBuilder {
        MultiProviderBuilder {
            name: "multi".into(),
            separator: "#".into(),
            removal_grace: Duration::from_secs(30),
            sync_timeout: Duration::from_secs(30),
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

    /// Sets what stands between child and cluster in a cluster's name. Default: `#`.
    #[must_use]
    pub fn separator(mut self, separator: impl Into<Arc<str>>) -> Self {
        self.separator = separator.into();
        self
    }

    /// Adds a child that is there from the beginning, under its provider's own name.
    #[must_use]
    pub fn child(self, provider: impl Provider) -> Self {
        let name: Arc<str> = provider.name().into();
        self.child_as(name, provider)
    }

    /// Adds a child that is there from the beginning, under another name.
    #[must_use]
    pub fn child_as(mut self, name: impl Into<Arc<str>>, provider: impl Provider) -> Self {
        self.children.push((name.into(), Arc::new(provider)));
        self
    }

    /// Sets how long a cluster stays that its restarted child no longer names. Default: 30 s.
    #[must_use]
    pub fn removal_grace(mut self, grace: Duration) -> Self {
        self.removal_grace = grace;
        self
    }

    /// Sets how long `Synced` waits for a child that fails or says nothing. Default: 30 s.
    ///
    /// No cluster goes because of it: those known of the child stay until it has said which it has.
    #[must_use]
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// Builds the provider. Starts no child yet.
    ///
    /// # Errors
    /// [`MultiError`] if the separator is empty or not printable, or a child's name is taken or unusable.
    pub fn build(self) -> Result<MultiProvider, MultiError> {
        check_separator(&self.separator)?;
        let registry = Registry::new(Options {
            separator: self.separator,
            removal_grace: self.removal_grace,
            sync_timeout: self.sync_timeout,
        });
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
            .field("separator", &self.separator)
            .field("removal_grace", &self.removal_grace)
            .field("sync_timeout", &self.sync_timeout)
            .field("children", &children)
            .finish()
    }
}
