//! The description of a cluster, as providers announce it.

use std::{collections::BTreeMap, sync::Arc};

use crate::access::Access;
use mcr_access::{ClusterName, InvalidClusterName};

/// The description of a cluster: its name, how to reach it, and labels to select it by.
///
/// A provider announces it with [`Change::Upsert`](crate::Change::Upsert), again after each change. The fleet compares it with
/// the previous spec and does only what the difference requires: swap credentials, reconnect, replace the cluster, or show new
/// labels. Announcing the same spec again costs nothing.
///
/// ```
/// use mcr_core::{Access, ClusterSpec, Trust};
///
/// let kubeconfig = include_bytes!("../tests/data/one-context.yaml");
/// let spec = ClusterSpec::named("prod-eu", Access::kubeconfig(kubeconfig, Trust::Untrusted))?
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
    /// How to reach the cluster.
    pub access: Access,
    /// The declared identity, such as the UID of an object or the id of a logical cluster.
    ///
    /// The identity distinguishes clusters, whatever their names, addresses and credentials. A change of identity replaces the
    /// cluster, and keeps nothing of the old one. So does another UID of the namespace `kube-system`, also if the declared
    /// identity stays. Without either, the fleet goes by server, CA and TLS name.
    pub identity: Option<Arc<str>>,
    /// Labels to select clusters by.
    pub labels: BTreeMap<String, String>,
    /// Other facts about the cluster in any form, such as its region, its version, or cluster properties of KEP-2149.
    pub properties: BTreeMap<String, String>,
    /// Whether the fleet should connect to the cluster now.
    pub availability: Availability,
    /// The name of the original provider, if the provider that announces the cluster forwards it from another one.
    /// [`Cluster::provider`](crate::Cluster::provider) returns it, and selectors use it.
    pub announced_by: Option<Arc<str>>,
}

/// The property with the name of a cluster for people, such as the path of a workspace. Logs and reports show it beside the name.
pub const DISPLAY_NAME: &str = "mcr.dev/display-name";

/// Whether the fleet should connect to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Availability {
    /// The cluster should answer: connect to it.
    #[default]
    Available,
    /// The cluster is not expected to answer, for example because it hibernates or is not ready yet. The fleet keeps its
    /// stores, opens no connection and raises no alarm.
    Suspended {
        /// The reason, as text for people.
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

    /// As [`new`](Self::new), but checks the name, and takes everything that is an access, such as a `kube::Client`.
    ///
    /// # Errors
    /// [`InvalidClusterName`], as [`ClusterName::new`].
    pub fn named(name: impl AsRef<str>, access: impl Into<Access>) -> Result<Self, InvalidClusterName> {
        Ok(Self::new(ClusterName::new(name)?, access.into()))
    }

    /// Sets the name of the original provider. For providers that forward the clusters of other providers.
    #[must_use]
    pub fn announced_by(mut self, provider: impl Into<Arc<str>>) -> Self {
        self.announced_by = Some(provider.into());
        self
    }

    /// Declares the [identity](Self::identity) of the cluster.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<Arc<str>>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Adds or replaces a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces a property.
    #[must_use]
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(key.into(), value.into());
        self
    }

    /// Marks the cluster as [suspended](Availability::Suspended), with the reason.
    #[must_use]
    pub fn suspended(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.availability = Availability::Suspended {
            reason: reason.into(),
        };
        self
    }
}
