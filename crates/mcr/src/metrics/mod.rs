//! The fleet and its controllers as metrics, in the text format of OpenMetrics.
//!
//! Gauges are read from the fleet when the metrics are encoded, so the series of a cluster end with the cluster. Counters
//! (reconciles, lists, failures) are kept by controller or by kind, never by cluster. Only a
//! [fixed small set](PerCluster) of metrics has one series for each cluster.

mod collector;
mod encode;
mod names;
mod options;

use std::fmt;

use mcr_core::Fleet;
use prometheus_client::{encoding::text, registry::Registry};

pub use names::{METRICS, MetricInfo, MetricKind};
pub use options::{MetricsOptions, PerCluster};
/// The prometheus-client that this release of mcr is built on.
pub use prometheus_client;

use self::collector::FleetCollector;
use crate::controller::ControllerHandle;

/// A registry with the metrics of a fleet and its controllers. You can register your own metrics with it.
///
/// It is for programs that serve metrics themselves. `ManagerBuilder::serve` serves them for you.
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
    /// The HTTP content type of [`text`](Self::text).
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Makes a registry with the metrics of a fleet and of controllers that run on it.
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

    /// The registry, to register your own metrics. Names that begin with `mcr_` are reserved.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Encodes all metrics as text.
    ///
    /// This takes about ten microseconds for each cluster. With thousands of clusters, call it on a blocking thread and not on
    /// a thread of the async runtime.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String never fails. An error could only come from a collector of the user.
        if text::encode(&mut out, &self.registry).is_err() {
            tracing::error!("a metric could not be encoded; the metrics after it are missing");
        }
        out
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
