//! The options of the metrics.

/// Whether each cluster has its own series.
///
/// A cluster has at most nine series: those of the metrics whose name begins with `mcr_cluster_` and that have the label
/// `cluster`. With thousands of clusters, this can be too much for a Prometheus server. `/clusters` has the same data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerCluster {
    /// Series for each cluster while there are at most this many clusters. With more clusters, no cluster has series, and
    /// `mcr_clusters_without_series` has their number. So a dashboard never shows a part of the fleet as the whole fleet.
    Limit(usize),
    /// No series for single clusters.
    Off,
}

impl Default for PerCluster {
    /// Series for at most 1,000 clusters, which are 9,000 series.
    fn default() -> Self {
        Self::Limit(1000)
    }
}

/// The options of the metrics.
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
    /// Whether each cluster has its own series. Default: yes, with up to 1,000 clusters.
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
