//! The fleet and its controllers as metrics, in the text format of OpenMetrics.
//!
//! Nearly everything is read when it is asked for: there are no gauges to keep in step, and the series of a
//! cluster end with the cluster. What happens too fast for that (reconciles, lists, failures) is counted by
//! controller or by kind, never by cluster. Only a [fixed small set](PerCluster) has one series for each cluster.

mod collector;
mod names;

use std::fmt;

use mcr_core::Fleet;
use prometheus_client::{encoding::text, registry::Registry};

pub use names::{METRICS, MetricInfo, MetricKind};
/// The prometheus-client that this release is built on.
pub use prometheus_client;

use self::collector::FleetCollector;
use crate::ControllerHandle;

/// How much is told of each cluster.
///
/// Each cluster has at most nine series: all metrics whose name begins with `mcr_cluster_` and that have the
/// label `cluster`. With thousands of clusters that is more than many Prometheus servers are sized for, and
/// `/clusters` tells the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerCluster {
    /// Series for each cluster while there are at most this many clusters. Beyond it they are left out for all
    /// of them, and `mcr_clusters_without_series` says how many that are: half of a fleet would look like all
    /// of it.
    Limit(usize),
    /// No series for single clusters.
    Off,
}

impl Default for PerCluster {
    /// At most 1,000 clusters, 9,000 series.
    fn default() -> Self {
        Self::Limit(1000)
    }
}

/// What is exposed.
///
/// ```
/// use mcr::metrics::{MetricsOptions, PerCluster};
///
/// let options = MetricsOptions::default().per_cluster(PerCluster::Limit(200));
/// assert_eq!(options.per_cluster, PerCluster::Limit(200));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MetricsOptions {
    /// How much is told of each cluster. Default: everything, for up to 1,000 clusters.
    pub per_cluster: PerCluster,
}

impl MetricsOptions {
    /// Sets [`per_cluster`](Self::per_cluster).
    #[must_use]
    pub fn per_cluster(mut self, per_cluster: PerCluster) -> Self {
        self.per_cluster = per_cluster;
        self
    }
}

/// A registry that has the metrics of a fleet and its controllers, and whatever else is registered with it.
///
/// For programs that serve metrics themselves; otherwise see `ManagerBuilder::serve`.
///
/// ```
/// use mcr::{Fleet, metrics::{Metrics, MetricsOptions, prometheus_client::metrics::counter::Counter}};
///
/// let fleet = Fleet::builder().build();
/// let mut metrics = Metrics::new(&fleet, [], MetricsOptions::default());
/// let fed = Counter::<u64>::default();
/// metrics.registry_mut().register("animals_fed", "Animals that were fed", fed.clone());
/// fed.inc();
/// assert!(metrics.text().contains("animals_fed_total 1"));
/// ```
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// What [`text`](Self::text) is, as HTTP names it.
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// The metrics of a fleet and of controllers that work on it.
    pub fn new(
        fleet: &Fleet,
        controllers: impl IntoIterator<Item = ControllerHandle>,
        options: MetricsOptions,
    ) -> Self {
        let mut registry = Registry::default();
        let controllers = controllers.into_iter().collect();
        registry.register_collector(Box::new(FleetCollector::new(fleet.clone(), controllers, options)));
        Self { registry }
    }

    /// For metrics of your own. Names that begin with `mcr_` are taken.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Everything as text. Takes some ten microseconds per cluster; with thousands of them it does not belong
    /// on a thread of the async runtime.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // A String takes everything; an error could only come from a collector of the user's.
        if text::encode(&mut out, &self.registry).is_err() {
            tracing::error!("a metric could not be written; the ones after it are missing");
        }
        out
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
