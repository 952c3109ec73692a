//! The settings of a fleet.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use mcr_access::{AccessPolicy, ClusterName};
use mcr_client::{TransportLayer, UserAgent};
use mcr_watch::WatchSettings;

/// The settings of a fleet. Most programs need no other values than the defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FleetSettings {
    /// How long a cluster stays that a restarted discovery no longer names. Default 30 seconds.
    pub removal_grace: Duration,
    /// How long running work of a leaving cluster may take to end. Default 10 seconds.
    pub drain_grace: Duration,
    /// How many clusters connect at once. Default 64. 0 counts as 1.
    pub connects: usize,
    /// The time of silence after which a cluster is probed for which work waits, or which has no watch without a proxy between.
    /// Default 20 seconds, so that such a cluster is Unreachable within 30 seconds. It is longer in large fleets, see
    /// [`probes_per_second`](Self::probes_per_second).
    ///
    /// Other clusters are probed after a silence that is three and a quarter times as long, and all clusters, whatever they send,
    /// at the latest after 45 times as long. By default this is 65 seconds, a little more than the minute between two bookmarks on a
    /// watch, and 15 minutes. With less than the default, each idle cluster is probed between two bookmarks. The kernel notices a
    /// dead network in any case.
    pub probe_after: Duration,
    /// How many silent clusters are probed in a second. Default 100, which takes less than a twentieth of a core. So in a
    /// fleet of more than 2,000 clusters, a silent cluster is noticed later. 0 counts as 1.
    pub probes_per_second: u32,
    /// How long a probe may take. Default 8 seconds.
    pub probe_timeout: Duration,
    /// The longest pause between attempts to reach a cluster. Default 20 seconds.
    pub reconnect_cap: Duration,
    /// How long fetching a credential may take. Default 35 seconds.
    pub credential_timeout: Duration,
    /// How long a store keeps an object that left a scope endpoint, if its cluster may be moving to another endpoint. Default
    /// 1 second; up to twice as long, and longer while the endpoint is not connected.
    pub uncertain_deletion_delay: Duration,
    /// Whether several clusters are engaged that answer with the same UID of `kube-system`, and so are one cluster under
    /// several names. Default false: only the hub, or else the one that was engaged first, is. The others are Suspended until
    /// it leaves, because a controller that copies objects between two names of one cluster takes its source for a copy, and
    /// in the end deletes it. If you allow it, such a controller asks [`Cluster::is_hub`](crate::Cluster::is_hub).
    pub allow_duplicates: bool,
    /// The clusters are connections of a provider, and the log shows them as such, at debug.
    #[doc(hidden)]
    pub internal: bool,
    /// What untrusted kubeconfigs may do. Providers without a policy of their own take this one.
    pub access_policy: AccessPolicy,
    /// Whether a cluster whose access has no credential may be read as `system:anonymous`. Default false: such a cluster is
    /// Unreachable, and no empty credential replaces a good one.
    pub allow_anonymous: bool,
    /// The settings of lists and watches.
    pub watch: Arc<WatchSettings>,
    /// Set by [`FleetBuilder::transport_layer`](super::FleetBuilder::transport_layer).
    pub(crate) transport_layer: Option<TransportLayers>,
    /// The User-Agent of all requests of the fleet and of the watches of its providers.
    pub user_agent: UserAgent,
    /// The `reportingComponent` of Kubernetes events. Default `mcr`.
    pub event_reporter: String,
    /// Whether a declared identity stands alone, so that the UID of `kube-system` is not read beside it: for providers whose
    /// endpoints show there what belongs to one of many. Not part of the API.
    #[doc(hidden)]
    pub declared_identity_suffices: bool,
    /// Time limits, size limits and proxies of connections. See [`FleetBuilder::transport`](super::FleetBuilder::transport).
    pub transport: Arc<mcr_client::Settings>,
}

/// Makes the layer over the requests of a cluster.
#[derive(Clone)]
pub(crate) struct TransportLayers(pub(crate) Arc<dyn Fn(&LayeredCluster) -> TransportLayer + Send + Sync>);

impl fmt::Debug for TransportLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransportLayers")
    }
}

/// A cluster whose requests get a layer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LayeredCluster {
    /// The name of the cluster.
    pub name: ClusterName,
    /// The name of the provider that has announced it.
    pub provider: Arc<str>,
    /// Its labels. The layer stays when they change later.
    pub labels: BTreeMap<String, String>,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            removal_grace: Duration::from_secs(30),
            drain_grace: Duration::from_secs(10),
            connects: 64,
            probe_after: Duration::from_secs(20),
            probes_per_second: 100,
            probe_timeout: Duration::from_secs(8),
            reconnect_cap: Duration::from_secs(20),
            credential_timeout: Duration::from_secs(35),
            uncertain_deletion_delay: Duration::from_secs(1),
            allow_duplicates: false,
            internal: false,
            access_policy: AccessPolicy::default(),
            allow_anonymous: false,
            watch: Arc::default(),
            transport_layer: None,
            user_agent: UserAgent::default(),
            event_reporter: "mcr".to_owned(),
            declared_identity_suffices: false,
            transport: Arc::default(),
        }
    }
}

impl FleetSettings {
    /// The time of silence after which a cluster is probed, in a fleet of `clusters` clusters.
    ///
    /// ```
    /// use mcr_core::FleetSettings;
    /// use std::time::Duration;
    ///
    /// let settings = FleetSettings::default();
    /// assert_eq!(settings.probe_after_among(2_000), Duration::from_secs(20));
    /// assert_eq!(settings.probe_after_among(5_000), Duration::from_secs(50));
    /// ```
    pub fn probe_after_among(&self, clusters: usize) -> Duration {
        let clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
        let all = Duration::from_secs(clusters.into()) / self.probes_per_second.max(1);
        self.probe_after.max(all)
    }
}
