use std::sync::Arc;

use mcr_core::{Access, ClusterName, ClusterSpec, InvalidClusterName};

use crate::provider::SingleProvider;

/// Builds a [`SingleProvider`]. [`SingleProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct SingleProviderBuilder {
    name: Arc<str>,
    spec: ClusterSpec,
}

impl SingleProvider {
    /// A provider of the cluster with this name and access.
    pub fn new(name: ClusterName, access: impl Into<Access>) -> Self {
        Self::builder(name, access).build()
    }

    /// As [`new`](Self::new), but checks the name.
    ///
    /// ```
    /// # fn example(client: kube::Client) -> Result<(), mcr_core::InvalidClusterName> {
    /// use mcr_core::HUB;
    /// use mcr_provider_single::SingleProvider;
    ///
    /// let hub = SingleProvider::named(HUB, client)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidClusterName`] if the name is empty, too long or has control characters.
    pub fn named(name: impl AsRef<str>, access: impl Into<Access>) -> Result<Self, InvalidClusterName> {
        ClusterSpec::named(name, access).map(Self::from)
    }

    /// A builder, to set labels, properties and an identity of the cluster as well.
    pub fn builder(name: ClusterName, access: impl Into<Access>) -> SingleProviderBuilder {
        SingleProviderBuilder::new(ClusterSpec::new(name, access.into()))
    }
}

impl From<ClusterSpec> for SingleProvider {
    fn from(spec: ClusterSpec) -> Self {
        SingleProviderBuilder::new(spec).build()
    }
}

impl SingleProviderBuilder {
    fn new(spec: ClusterSpec) -> Self {
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

    /// Declares the [identity](ClusterSpec::identity) of the cluster. Default: the fleet determines it.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<Arc<str>>) -> Self {
        self.spec = self.spec.identity(identity);
        self
    }

    /// Sets a label, by which controllers can select the cluster.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec = self.spec.label(key, value);
        self
    }

    /// Sets a property.
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
