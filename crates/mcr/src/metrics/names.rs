//! The names, labels and help texts of all metrics.

use prometheus_client::metrics::MetricType;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only goes up.
    Counter,
    /// Durations, counted in buckets.
    Histogram,
}

impl MetricKind {
    /// The name of the type in the text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }

    pub(super) fn type_of(self) -> MetricType {
        match self {
            Self::Gauge => MetricType::Gauge,
            Self::Counter => MetricType::Counter,
            Self::Histogram => MetricType::Histogram,
        }
    }
}

/// The description of one metric, for tables, dashboards and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricInfo {
    /// The name. Counters end with `_total`; histograms are exposed as `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) const $id: MetricInfo = MetricInfo {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// Every metric, in the order in which they are exposed.
        pub const METRICS: &[MetricInfo] = &[$($id),*];
    };
}

metrics! {
    BUILD: Gauge "mcr_build_info" ["version"]
        "Always 1; the version of mcr is in the label";
    CLUSTERS: Gauge "mcr_clusters" ["state"]
        "Clusters by state";
    LEADER: Gauge "mcr_leader" []
        "1 while this process leads, 0 while it is a standby; missing without leader election";
    DUPLICATES: Gauge "mcr_clusters_duplicate" []
        "Clusters that are another name of a cluster in the fleet: they answer with the same kube-system UID";
    WITHOUT_SERIES: Gauge "mcr_clusters_without_series" []
        "Clusters that have no series of their own because there are too many or it was switched off";
    TRANSITIONS: Counter "mcr_cluster_state_transitions_total" ["state"]
        "How often clusters entered a state; Discovered counts joins and Gone leaves";
    CREDENTIALS: Counter "mcr_credential_renewals_total" ["result"]
        "New credentials: renewed, unchanged (the source had none), failed";
    PROVIDER_SYNCED: Gauge "mcr_provider_synced" ["provider"]
        "Whether the provider has announced everything once";
    PROVIDER_RESTARTS: Counter "mcr_provider_restarts_total" ["provider"]
        "How often the provider's discovery ended and was started again";

    WATCHES: Gauge "mcr_watches" ["kind"]
        "Watches of a kind in all clusters";
    WATCHES_LISTED: Gauge "mcr_watches_listed" ["kind"]
        "Watches that have listed completely";
    WATCHES_BLOCKED: Gauge "mcr_watches_blocked" ["kind"]
        "Watches that are forbidden, or whose kind is not served or is withheld";
    OBJECTS: Gauge "mcr_store_objects" ["kind"]
        "Objects held";
    BYTES: Gauge "mcr_store_bytes" ["kind"]
        "Bytes of JSON held";
    LISTS: Counter "mcr_lists_total" ["kind"]
        "Complete lists";
    LIST_BYTES: Counter "mcr_list_bytes_total" ["kind"]
        "Bytes of lists read, lists that broke off included";
    LIST_SECONDS: Counter "mcr_list_seconds_total" ["kind"]
        "How long complete lists took, waiting for their turn included";
    EVENTS: Counter "mcr_watch_events_total" ["kind"]
        "Objects that watches delivered";
    SKIPPED: Counter "mcr_objects_skipped_total" ["kind"]
        "Objects left out because they could not be read, each time they came";
    FAILURES: Counter "mcr_watch_failures_total" ["kind", "reason"]
        "Lists and watches that failed";

    CONTROLLER_CLUSTERS: Gauge "mcr_controller_clusters" ["controller", "gate"]
        "Clusters of a controller by whether requests are dispatched (open), or watches have yet to list (waiting) or can't (blocked)";
    CONTROLLER_PARKED: Gauge "mcr_controller_clusters_parked" ["controller"]
        "Clusters whose requests wait because the cluster is unreachable or suspended";
    QUEUE_DEPTH: Gauge "mcr_queue_depth" ["controller", "status"]
        "Requests that are ready, or delayed until their time";
    QUEUE_OLDEST: Gauge "mcr_queue_oldest_wait_seconds" ["controller"]
        "How long the request has waited that has been ready longest, of those whose cluster is neither gated nor parked";
    QUEUE_WAIT: Histogram "mcr_queue_wait_seconds" ["controller"]
        "How long requests were ready before they were dispatched";
    QUEUE_ADDS: Counter "mcr_queue_adds_total" ["controller"]
        "Requests asked for";
    QUEUE_COALESCED: Counter "mcr_queue_coalesced_total" ["controller"]
        "Requests asked for while the same one was waiting already";
    RUNNING: Gauge "mcr_reconciles_running" ["controller"]
        "Reconciles that run";
    LONGEST: Gauge "mcr_reconcile_longest_running_seconds" ["controller"]
        "How long the reconcile has been running that began first";
    RECONCILES: Counter "mcr_reconciles_total" ["controller", "result"]
        "Reconciles that ended: success, error, terminal (an error that is not retried), panic, timeout, aborted (their cluster left and they did not end in time), dropped (their cluster left, or the object can't be decoded)";
    DURATION: Histogram "mcr_reconcile_duration_seconds" ["controller"]
        "How long reconciles took, save the aborted ones";
    RETRIES: Counter "mcr_reconcile_retries_total" ["controller"]
        "Reconciles that are tried again because they failed";
    UNDECODABLE: Counter "mcr_undecodable_objects_total" ["controller"]
        "Objects that could not be decoded as the controller's kinds, each once per change";
    CALLBACK_PANICS: Counter "mcr_callback_panics_total" ["controller"]
        "Panics of mappers, predicates and selectors";
    MISDIRECTED: Counter "mcr_misdirected_requests_total" ["controller"]
        "Requests dropped because the controller does not select their cluster, or too many waited for clusters that have not joined";
    OVERFLOWED: Counter "mcr_overflowed_requests_total" ["controller"]
        "Requests not kept because too many waited in a cluster where nothing is dispatched (closed gate, unreachable, standby)";

    CLUSTER_STATE: Gauge "mcr_cluster_state" ["cluster", "provider", "state"]
        "Always 1; the cluster's state is in the label";
    CLUSTER_LAST_EVENT: Gauge "mcr_cluster_last_event_age_seconds" ["cluster"]
        "How long ago anything was received on one of the cluster's watches";
    CLUSTER_EXPIRY: Gauge "mcr_cluster_credential_expiry_timestamp_seconds" ["cluster"]
        "When the cluster's credentials expire, as Unix time; missing if they don't or it is not known";
    CLUSTER_KINDS: Gauge "mcr_cluster_kinds" ["cluster"]
        "The cluster's watches";
    CLUSTER_LISTED: Gauge "mcr_cluster_kinds_listed" ["cluster"]
        "The cluster's watches that have listed completely";
    CLUSTER_BLOCKED: Gauge "mcr_cluster_kinds_blocked" ["cluster"]
        "The cluster's watches that are forbidden, or whose kind is not served or is withheld";
    CLUSTER_QUEUE: Gauge "mcr_cluster_queue_depth" ["cluster"]
        "Requests of the cluster that wait, in all controllers";
    CLUSTER_OBJECTS: Gauge "mcr_cluster_objects" ["cluster"]
        "Objects held of the cluster";
    CLUSTER_BYTES: Gauge "mcr_cluster_bytes" ["cluster"]
        "Bytes of JSON held of the cluster";
}
