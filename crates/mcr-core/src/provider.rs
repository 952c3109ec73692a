//! The trait of providers, and the changes that they announce.

use std::{fmt, sync::Arc};

use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::{doctor::Doctor, spec::ClusterSpec};
use mcr_access::{AccessPolicy, BoxError, ClusterName};
use mcr_watch::WatchSettings;

/// One announcement of a [`Provider`].
///
/// ```
/// use mcr_core::{BrokenCluster, Change, ClusterName};
///
/// # fn main() -> Result<(), mcr_core::InvalidClusterName> {
/// let name = ClusterName::new("dev")?;
/// let broken = BrokenCluster::new(name.clone(), "file /etc/fleet/dev.yaml", "the file is empty");
/// let changes = [Change::Broken(broken), Change::Remove(name), Change::Synced];
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// The cluster exists, with this spec. The fleet finds out whether the cluster is new, changed or unchanged.
    Upsert(ClusterSpec),
    /// The description of the cluster is unusable: for example, a file is half written, or a Secret lacks a key. The fleet
    /// shows the error. A cluster that is engaged already keeps its last usable spec.
    Broken(BrokenCluster),
    /// The cluster is gone.
    Remove(ClusterName),
    /// The provider has announced all clusters that existed when the discovery began. The fleet removes clusters that an
    /// earlier discovery announced and this one did not, after a grace period.
    Synced,
}

/// A cluster whose description is unusable.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokenCluster {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The object or file that describes the cluster, as text for people: `file /etc/fleet/a.yaml, context "dev"`.
    pub object: Arc<str>,
    /// What is wrong, and what to do about it. It must not contain secrets, because logs and the state of the fleet show it.
    pub error: Arc<str>,
}

impl BrokenCluster {
    /// A cluster, the object that describes it, and the error in that description.
    pub fn new(name: ClusterName, object: impl Into<Arc<str>>, error: impl fmt::Display) -> Self {
        Self {
            name,
            object: object.into(),
            error: error.to_string().into(),
        }
    }
}

impl fmt::Display for BrokenCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.error)
    }
}

/// A running discovery: a stream of the changes that a [`Provider`] announces, in order.
///
/// A discovery fails with an `Err` item, with a panic, or when its stream ends before `stop` is cancelled. The fleet logs the
/// error, shows it in the snapshot, and starts the discovery again after a growing, jittered pause.
pub type Discovery = BoxStream<'static, Result<Change, BoxError>>;

/// The settings of a fleet that concern the discoveries of its providers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DiscoverySettings {
    /// What untrusted kubeconfigs may do.
    pub access_policy: AccessPolicy,
    /// The settings of lists and watches.
    pub watch: Arc<WatchSettings>,
    /// The limits and proxies of connections to clusters.
    pub transport: Arc<mcr_client::Settings>,
}

impl From<AccessPolicy> for DiscoverySettings {
    /// The defaults, with this policy.
    fn from(access_policy: AccessPolicy) -> Self {
        Self {
            access_policy,
            watch: Arc::default(),
            transport: Arc::default(),
        }
    }
}

/// A source of clusters.
///
/// A provider announces clusters, and never connects to them. The fleet may start a discovery at any time. Each discovery first
/// announces all clusters that exist, then [`Change::Synced`], then changes as they happen. So the fleet also notices clusters
/// that have gone between two discoveries. Layers ([`prefix`](crate::layer::prefix), [`filter`](crate::layer::filter),
/// [`merge`](crate::layer::merge)) turn a provider into another.
///
/// # Cancellation
/// The stream must end soon after `stop` is cancelled. Dropping the stream must stop all work behind it.
///
/// ```
/// use futures::{StreamExt, stream};
/// use mcr_core::{Access, Change, ClusterName, ClusterSpec, Discovery, Provider, Trust};
/// use tokio_util::sync::CancellationToken;
///
/// /// One cluster that never changes.
/// struct Constant(ClusterSpec);
///
/// impl Provider for Constant {
///     fn name(&self) -> &str {
///         "constant"
///     }
///     fn discover(&self, stop: CancellationToken) -> Discovery {
///         let first = [Ok(Change::Upsert(self.0.clone())), Ok(Change::Synced)];
///         stream::iter(first).chain(stream::pending()).take_until(stop.cancelled_owned()).boxed()
///     }
/// }
/// ```
pub trait Provider: Send + Sync + 'static {
    /// The name of the provider. It is used in selectors, log lines and metric labels, so it should be short and must not change.
    fn name(&self) -> &str;

    /// Starts a discovery. The fleet calls it again when a discovery has failed.
    fn discover(&self, stop: CancellationToken) -> Discovery;

    /// Starts a discovery in a fleet with these settings. The fleet calls this method instead of [`discover`](Self::discover).
    ///
    /// A provider that checks untrusted kubeconfigs applies the policy unless it has a policy of its own, and a provider that
    /// watches objects in a hub passes the settings of watches to its [`HubWatch`](crate::HubWatch). A layer passes `settings`
    /// on: without them, the inner provider applies the defaults. Default: [`discover`](Self::discover).
    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let _ = settings;
        self.discover(stop)
    }

    /// Says where the provider looks for clusters and how to add one there. The fleet logs the text if it has no clusters.
    /// Must do no I/O and show no secrets. Default: an empty text, which is not logged.
    fn searched(&self) -> String {
        String::new()
    }

    /// What `mcr doctor` checks of this provider and its clusters. Default: nothing beyond the checks of all clusters.
    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        None
    }
}

macro_rules! forward {
    ($($pointer:ident),*) => {$(
        impl<P: Provider + ?Sized> Provider for $pointer<P> {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn discover(&self, stop: CancellationToken) -> Discovery {
                (**self).discover(stop)
            }
            fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
                (**self).discover_with(stop, settings)
            }
            fn searched(&self) -> String {
                (**self).searched()
            }
            fn doctor(&self) -> Option<Arc<dyn Doctor>> {
                (**self).doctor()
            }
        }
    )*};
}
forward!(Arc, Box);
