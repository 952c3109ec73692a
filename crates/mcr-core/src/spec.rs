//! What a provider says about one cluster.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Access, ClusterName};

/// What a provider says about one cluster: its name, how to reach it, and what to select it by.
///
/// Announced with [`Change::Upsert`](crate::Change::Upsert). Announcing the same spec again costs nothing;
/// announcing it with a difference makes the fleet do exactly what the difference asks for (swap credentials,
/// reconnect, replace the cluster, or only relabel it).
///
/// ```
/// use mcr_core::{Access, ClusterName, ClusterSpec, Trust};
///
/// let spec = ClusterSpec::new(
///     ClusterName::new("prod-eu")?,
///     Access::kubeconfig(include_bytes!("../tests/data/one-context.yaml").as_slice(), Trust::Untrusted),
/// )
/// .label("region", "eu")
/// .identity("3f6c2a0e-uid-of-the-object");
/// assert_eq!(spec.labels["region"], "eu");
/// # Ok::<(), mcr_core::InvalidClusterName>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterSpec {
    /// The name, unique in the fleet.
    pub name: ClusterName,
    /// How to connect.
    pub access: Access,
    /// What makes this cluster this cluster, whatever its name, address and credentials: an object UID, a
    /// logical cluster id. A change of identity replaces the cluster; nothing of the old one is kept.
    /// Without it the fleet goes by the UID of the `kube-system` namespace, or else by server and CA.
    pub identity: Option<Arc<str>>,
    /// Labels to select clusters by.
    pub labels: BTreeMap<String, String>,
    /// Further facts about the cluster, free in form (KEP-2149 cluster properties, region, version, …).
    pub properties: BTreeMap<String, String>,
    /// Whether the cluster is meant to be reachable now.
    pub availability: Availability,
    /// The provider the cluster comes from, where the one that announces it only passes it on.
    /// [`Cluster::provider`](crate::Cluster::provider) then tells this one, so that clusters can be selected by it.
    pub announced_by: Option<Arc<str>>,
}

/// Whether a cluster is meant to be reachable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Availability {
    /// The cluster is up as far as the provider knows: connect to it.
    #[default]
    Available,
    /// The cluster is not expected to answer (hibernated, stopped, not ready yet, inactive). Its stores are
    /// kept, nothing is dialled, and no alarm is raised.
    Suspended {
        /// Why, in words for people.
        reason: Arc<str>,
    },
}

impl ClusterSpec {
    /// A spec of an available cluster without labels, properties or a declared identity.
    pub fn new(name: ClusterName, access: Access) -> Self {
        Self {
            name,
            access,
            identity: None,
            labels: BTreeMap::new(),
            properties: BTreeMap::new(),
            availability: Availability::Available,
            announced_by: None,
        }
    }

    /// Names the provider the cluster comes from, for providers that pass on what others say.
    #[must_use]
    pub fn announced_by(mut self, provider: impl Into<Arc<str>>) -> Self {
        self.announced_by = Some(provider.into());
        self
    }

    /// Declares the identity.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<Arc<str>>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Adds a label, or replaces it.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a property, or replaces it.
    #[must_use]
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(key.into(), value.into());
        self
    }

    /// Says that the cluster is not expected to answer, and why.
    #[must_use]
    pub fn suspended(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.availability = Availability::Suspended {
            reason: reason.into(),
        };
        self
    }
}
