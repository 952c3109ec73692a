//! Reads the fleet and its controllers when metrics are asked for.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use mcr_core::{ClusterState, Fleet};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
};

use super::{
    MetricInfo, MetricsOptions, PerCluster,
    names::{self, MetricKind},
};
use crate::{
    ClusterReport, ControllerHandle, FleetReport, GateStatus, controller::HistogramRead, report::distinct,
};

pub(super) struct FleetCollector {
    fleet: Fleet,
    controllers: Vec<ControllerHandle>,
    options: MetricsOptions,
}

impl FleetCollector {
    pub(super) fn new(fleet: Fleet, controllers: Vec<ControllerHandle>, options: MetricsOptions) -> Self {
        Self {
            fleet,
            controllers,
            options,
        }
    }
}

impl fmt::Debug for FleetCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetCollector")
            .field("controllers", &self.controllers)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Collector for FleetCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        let report = FleetReport::of(&self.fleet, &self.controllers);
        let shown = shown(&report.clusters, self.options.per_cluster);
        self.fleet(&mut out, &report, shown.len())?;
        self.kinds(&mut out, &report)?;
        self.controllers(&mut out, &report)?;
        clusters(&mut out, &shown)
    }
}

/// The clusters that have series of their own. One that is leaving has none if its successor is there already:
/// two series of the same name make the whole answer invalid.
fn shown(clusters: &[ClusterReport], per_cluster: PerCluster) -> Vec<&ClusterReport> {
    match per_cluster {
        PerCluster::Limit(limit) if clusters.len() <= limit => {}
        _ => return Vec::new(),
    }
    let (leaving, there): (Vec<_>, Vec<_>) = clusters
        .iter()
        .partition(|cluster| cluster.status.state == "Draining");
    let mut seen = HashSet::new();
    there
        .into_iter()
        .chain(leaving)
        .filter(|cluster| seen.insert(&cluster.status.name))
        .collect()
}

/// A cluster whose description was never usable is in none of the fleet's states.
const BROKEN: &str = "Broken";

impl FleetCollector {
    fn fleet(&self, out: &mut Out<'_>, report: &FleetReport, shown: usize) -> fmt::Result {
        let counts = self.fleet.counts();
        out.one(names::BUILD, [env!("CARGO_PKG_VERSION")], 1u64)?;
        let states = ClusterState::NAMES.into_iter().filter(|state| *state != "Gone");
        out.family(names::CLUSTERS, |series| {
            for state in states.chain([BROKEN]) {
                let count = report
                    .clusters
                    .iter()
                    .filter(|cluster| cluster.status.state == state)
                    .count();
                series.value([state], count)?;
            }
            Ok(())
        })?;
        let names: HashSet<_> = report
            .clusters
            .iter()
            .map(|cluster| &cluster.status.name)
            .collect();
        out.one(names::WITHOUT_SERIES, [], names.len().saturating_sub(shown))?;
        out.family(names::TRANSITIONS, |series| {
            counts
                .states
                .iter()
                .try_for_each(|(state, count)| series.value([state], *count))
        })?;
        out.family(names::CREDENTIALS, |series| {
            series.value(["renewed"], counts.credentials.renewed)?;
            series.value(["unchanged"], counts.credentials.unchanged)?;
            series.value(["failed"], counts.credentials.failed)
        })?;
        let providers = distinct(report.providers.iter().map(|provider| &*provider.name));
        let providers: Vec<_> = providers.iter().zip(&report.providers).collect();
        out.family(names::PROVIDER_SYNCED, |series| {
            providers
                .iter()
                .try_for_each(|(name, provider)| series.value([name], u64::from(provider.synced)))
        })?;
        out.family(names::PROVIDER_RESTARTS, |series| {
            providers
                .iter()
                .try_for_each(|(name, provider)| series.value([name], provider.restarts))
        })
    }

    fn kinds(&self, out: &mut Out<'_>, report: &FleetReport) -> fmt::Result {
        let counts = self.fleet.counts().kinds;
        let mut held: BTreeMap<&str, Held> = counts.keys().map(|kind| (&**kind, Held::default())).collect();
        for kind in report.clusters.iter().flat_map(|cluster| &cluster.status.kinds) {
            // The kinds that are counted are bounded, and so are these.
            let name = counts
                .get_key_value(kind.kind.as_str())
                .map_or("other", |(name, _)| &**name);
            let held = held.entry(name).or_default();
            held.watches += 1;
            held.listed += u64::from(kind.synced);
            held.blocked += u64::from(kind.blocked);
            held.objects += kind.objects;
            held.bytes += kind.bytes;
        }
        out.each(names::WATCHES, &held, |held| held.watches)?;
        out.each(names::WATCHES_LISTED, &held, |held| held.listed)?;
        out.each(names::WATCHES_BLOCKED, &held, |held| held.blocked)?;
        out.each(names::OBJECTS, &held, |held| held.objects)?;
        out.each(names::BYTES, &held, |held| held.bytes)?;
        out.each(names::LISTS, &counts, |kind| kind.lists)?;
        out.each(names::LIST_BYTES, &counts, |kind| kind.list_bytes)?;
        out.each(names::LIST_SECONDS, &counts, |kind| kind.list_time.as_secs_f64())?;
        out.each(names::EVENTS, &counts, |kind| kind.events)?;
        out.each(names::SKIPPED, &counts, |kind| kind.skipped)?;
        out.family(names::FAILURES, |series| {
            for (kind, counts) in &counts {
                for (reason, count) in &counts.failures {
                    series.value([kind, reason], *count)?;
                }
            }
            Ok(())
        })
    }

    fn controllers(&self, out: &mut Out<'_>, report: &FleetReport) -> fmt::Result {
        let all = &report.controllers;
        let mut gates: BTreeMap<&Arc<str>, Gates> = all
            .iter()
            .map(|controller| (&controller.name, Gates::default()))
            .collect();
        for (name, status) in report.clusters.iter().flat_map(|cluster| &cluster.controllers) {
            let gates = gates.entry(name).or_default();
            match status.gate {
                GateStatus::Open => gates.open += 1,
                GateStatus::Waiting(_) => gates.waiting += 1,
                GateStatus::Blocked(_) => gates.blocked += 1,
            }
            gates.parked += u64::from(status.parked);
        }
        out.family(names::CONTROLLER_CLUSTERS, |series| {
            for (name, gates) in &gates {
                series.value([name, "open"], gates.open)?;
                series.value([name, "waiting"], gates.waiting)?;
                series.value([name, "blocked"], gates.blocked)?;
            }
            Ok(())
        })?;
        out.each(names::CONTROLLER_PARKED, &gates, |gates| gates.parked)?;
        out.family(names::QUEUE_DEPTH, |series| {
            for controller in all {
                series.value([&controller.name, "ready"], controller.queue.ready)?;
                series.value([&controller.name, "delayed"], controller.queue.delayed)?;
            }
            Ok(())
        })?;
        let all: Vec<_> = all
            .iter()
            .map(|controller| (&controller.name, controller))
            .collect();
        let named = || all.iter().copied();
        out.each(names::QUEUE_OLDEST, named(), |c| {
            c.queue.oldest_wait.unwrap_or_default()
        })?;
        let handles = || all.iter().map(|(name, _)| name).zip(&self.controllers);
        out.family(names::QUEUE_WAIT, |series| {
            handles().try_for_each(|(name, handle)| series.histogram([name], &handle.waits()))
        })?;
        out.each(names::QUEUE_ADDS, named(), |c| c.counts.requested)?;
        out.each(names::QUEUE_COALESCED, named(), |c| c.counts.coalesced)?;
        out.each(names::RUNNING, named(), |c| c.queue.running)?;
        out.each(names::LONGEST, named(), |c| {
            c.queue.longest_running.as_ref().map_or(0.0, |run| run.seconds)
        })?;
        out.family(names::RECONCILES, |series| {
            for (name, controller) in &all {
                let counts = &controller.counts;
                series.value([name, "success"], counts.successes)?;
                series.value([name, "error"], counts.errors)?;
                series.value([name, "panic"], counts.panics)?;
                series.value([name, "timeout"], counts.timeouts)?;
                series.value([name, "aborted"], counts.aborted)?;
                series.value([name, "dropped"], counts.dropped)?;
            }
            Ok(())
        })?;
        out.family(names::DURATION, |series| {
            handles().try_for_each(|(name, handle)| series.histogram([name], &handle.durations()))
        })?;
        out.each(names::RETRIES, named(), |c| c.counts.retries)?;
        out.each(names::UNDECODABLE, named(), |c| c.counts.undecodable)?;
        out.each(names::CALLBACK_PANICS, named(), |c| c.counts.callback_panics)?;
        out.each(names::MISDIRECTED, named(), |c| c.counts.misdirected)
    }
}

fn clusters(out: &mut Out<'_>, shown: &[&ClusterReport]) -> fmt::Result {
    out.family(names::CLUSTER_STATE, |series| {
        shown
            .iter()
            .map(|cluster| &cluster.status)
            .try_for_each(|status| series.value([status.name.as_str(), &status.provider, status.state], 1u64))
    })?;
    let now = SystemTime::now();
    let named = || {
        shown
            .iter()
            .map(|cluster| (cluster.status.name.as_str(), *cluster))
    };
    // What is not known has no series: nought would be taken for a value.
    out.family(names::CLUSTER_LAST_EVENT, |series| {
        for (name, cluster) in named() {
            if let Some(at) = cluster.status.last_event {
                series.value([name], now.duration_since(at).unwrap_or_default().as_secs_f64())?;
            }
        }
        Ok(())
    })?;
    out.family(names::CLUSTER_EXPIRY, |series| {
        for (name, cluster) in named() {
            if let Some(at) = cluster.status.credential_expires {
                series.value(
                    [name],
                    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
                )?;
            }
        }
        Ok(())
    })?;
    out.each(names::CLUSTER_KINDS, named(), |cluster| {
        cluster.status.kinds.len()
    })?;
    out.each(names::CLUSTER_LISTED, named(), |cluster| {
        cluster.status.kinds_listed
    })?;
    out.each(names::CLUSTER_BLOCKED, named(), |cluster| {
        cluster.status.kinds_blocked
    })?;
    out.each(names::CLUSTER_QUEUE, named(), |cluster| cluster.queue_depth)?;
    out.each(names::CLUSTER_OBJECTS, named(), |cluster| cluster.status.objects)?;
    out.each(names::CLUSTER_BYTES, named(), |cluster| cluster.status.bytes)
}

/// What is held of a kind in all clusters.
#[derive(Default)]
struct Held {
    watches: u64,
    listed: u64,
    blocked: u64,
    objects: usize,
    bytes: usize,
}

/// The clusters of a controller.
#[derive(Default)]
struct Gates {
    open: u64,
    waiting: u64,
    blocked: u64,
    parked: u64,
}

/// A value of a series.
enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// Writes metrics as they are described.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn family(
        &mut self,
        metric: MetricInfo,
        write: impl FnOnce(&mut Series<'_>) -> fmt::Result,
    ) -> fmt::Result {
        // The encoder appends the suffix of counters itself.
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        let encoder = self
            .0
            .encode_descriptor(name, metric.help, None, metric.kind.type_of())?;
        write(&mut Series { metric, encoder })
    }

    fn one<const N: usize>(
        &mut self,
        metric: MetricInfo,
        labels: [&str; N],
        value: impl Into<Value>,
    ) -> fmt::Result {
        self.family(metric, |series| series.value(labels, value))
    }

    /// A metric whose only label is the name of a thing.
    fn each<N: AsRef<str>, T, V: Into<Value>>(
        &mut self,
        metric: MetricInfo,
        things: impl IntoIterator<Item = (N, T)>,
        value: impl Fn(T) -> V,
    ) -> fmt::Result {
        self.family(metric, |series| {
            things
                .into_iter()
                .try_for_each(|(name, thing)| series.value([name.as_ref()], value(thing)))
        })
    }
}

/// The series of one metric.
struct Series<'a> {
    metric: MetricInfo,
    encoder: MetricEncoder<'a>,
}

impl Series<'_> {
    fn labels<'v, const N: usize>(&self, values: [&'v str; N]) -> Vec<(&'static str, &'v str)> {
        debug_assert_eq!(N, self.metric.labels.len(), "{}", self.metric.name);
        self.metric.labels.iter().copied().zip(values).collect()
    }

    fn value<const N: usize>(&mut self, labels: [&str; N], value: impl Into<Value>) -> fmt::Result {
        let labels = self.labels(labels);
        let kind = self.metric.kind;
        // An empty set of labels would be written as `{}`.
        if labels.is_empty() {
            write(&mut self.encoder, kind, value.into())
        } else {
            write(&mut self.encoder.encode_family(&labels)?, kind, value.into())
        }
    }

    fn histogram<const N: usize>(&mut self, labels: [&str; N], read: &HistogramRead) -> fmt::Result {
        let labels = self.labels(labels);
        let mut family = self.encoder.encode_family(&labels)?;
        family.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: Value) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, Value::Whole(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (MetricKind::Counter, Value::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (_, Value::Whole(value)) => encoder.encode_gauge(&value),
        (_, Value::Real(value)) => encoder.encode_gauge(&value),
    }
}
