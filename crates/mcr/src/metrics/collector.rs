//! Collects the metrics of the fleet and its controllers when they are encoded.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use mcr_core::{ClusterState, Fleet};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::{
    encode::Encoder,
    names,
    options::{MetricsOptions, PerCluster},
};
use crate::{
    controller::{ControllerHandle, GateStatus},
    report::{ClusterReport, FleetReport, distinct, leadership},
};

#[derive(Debug)]
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

impl Collector for FleetCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Encoder::new(encoder);
        let report = FleetReport::of(&self.fleet, &self.controllers);
        let with_series = with_series(&report.clusters, self.options.per_cluster);
        self.fleet(&mut out, &report, with_series.len())?;
        self.kinds(&mut out, &report)?;
        self.controllers(&mut out, &report)?;
        clusters(&mut out, &with_series)
    }
}

/// The clusters that have their own series. If two clusters have the same name, a draining one has none: two equal series
/// would make the whole response invalid.
fn with_series(clusters: &[ClusterReport], per_cluster: PerCluster) -> Vec<&ClusterReport> {
    match per_cluster {
        PerCluster::Limit(limit) if clusters.len() <= limit => {}
        _ => return Vec::new(),
    }
    let (draining, current): (Vec<_>, Vec<_>) = clusters
        .iter()
        .partition(|cluster| cluster.status.state == "Draining");
    let mut seen = HashSet::new();
    current
        .into_iter()
        .chain(draining)
        .filter(|cluster| seen.insert(&cluster.status.name))
        .collect()
}

/// The state of a cluster whose spec was never usable. It is not among the states of the fleet.
const BROKEN: &str = "Broken";

impl FleetCollector {
    fn fleet(&self, out: &mut Encoder<'_>, report: &FleetReport, with_series: usize) -> fmt::Result {
        let (counts, clusters) = (self.fleet.counts(), &report.clusters);
        out.one(names::BUILD, [env!("CARGO_PKG_VERSION")], 1u64)?;
        let states = ClusterState::NAMES
            .iter()
            .copied()
            .filter(|state| *state != "Gone");
        let in_state = |state: &str| {
            clusters
                .iter()
                .filter(|cluster| cluster.status.state == state)
                .count()
        };
        let states = states.chain([BROKEN]).map(|state| ([state], in_state(state)));
        out.all(names::CLUSTERS, states)?;
        let names: HashSet<_> = clusters.iter().map(|cluster| &cluster.status.name).collect();
        // Encoded in the order of their descriptions.
        let leads = leadership(&self.controllers).map(|leadership| ([], u64::from(leadership.is_held())));
        out.all(names::LEADER, leads)?;
        let duplicates = clusters.iter().filter(|cluster| cluster.status.same_as.is_some());
        out.one(names::DUPLICATES, [], duplicates.count())?;
        out.one(names::WITHOUT_SERIES, [], names.len().saturating_sub(with_series))?;
        out.each(names::TRANSITIONS, &counts.states, |count| *count)?;
        let renewals = counts.credentials;
        let renewals = [
            (["renewed"], renewals.renewed),
            (["unchanged"], renewals.unchanged),
            (["failed"], renewals.failed),
        ];
        out.all(names::CREDENTIALS, renewals)?;
        let providers = distinct(report.providers.iter().map(|provider| &*provider.name));
        let providers = || providers.iter().zip(&report.providers);
        out.each(names::PROVIDER_SYNCED, providers(), |provider| {
            u64::from(provider.synced)
        })?;
        out.each(names::PROVIDER_RESTARTS, providers(), |provider| {
            provider.restarts
        })
    }

    fn kinds(&self, out: &mut Encoder<'_>, report: &FleetReport) -> fmt::Result {
        let counts = self.fleet.counts().kinds;
        let mut totals: BTreeMap<&str, KindTotals> = counts
            .keys()
            .map(|kind| (&**kind, KindTotals::default()))
            .collect();
        for kind in report.clusters.iter().flat_map(|cluster| &cluster.status.kinds) {
            // The fleet counts a limited number of kinds, which limits the series here too.
            let name = counts
                .get_key_value(kind.kind.as_str())
                .map_or("other", |(name, _)| &**name);
            let total = totals.entry(name).or_default();
            total.watches += 1;
            total.listed += u64::from(kind.synced);
            total.blocked += u64::from(kind.blocked);
            total.objects += kind.objects;
            total.bytes += kind.bytes;
        }
        out.each(names::WATCHES, &totals, |total| total.watches)?;
        out.each(names::WATCHES_LISTED, &totals, |total| total.listed)?;
        out.each(names::WATCHES_BLOCKED, &totals, |total| total.blocked)?;
        out.each(names::OBJECTS, &totals, |total| total.objects)?;
        out.each(names::BYTES, &totals, |total| total.bytes)?;
        out.each(names::LISTS, &counts, |kind| kind.lists)?;
        out.each(names::LIST_BYTES, &counts, |kind| kind.list_bytes)?;
        out.each(names::LIST_SECONDS, &counts, |kind| kind.list_time.as_secs_f64())?;
        out.each(names::EVENTS, &counts, |kind| kind.events)?;
        out.each(names::SKIPPED, &counts, |kind| kind.skipped)?;
        let failures = counts.iter().flat_map(|(kind, counts)| {
            let failures = counts.failures.iter();
            failures.map(move |(reason, count)| ([&**kind, *reason], *count))
        });
        out.all(names::FAILURES, failures)
    }

    fn controllers(&self, out: &mut Encoder<'_>, report: &FleetReport) -> fmt::Result {
        let all = &report.controllers;
        let gates = all
            .iter()
            .map(|controller| (&controller.name, GateCounts::default()));
        let mut gates: BTreeMap<&Arc<str>, GateCounts> = gates.collect();
        for (name, status) in report.clusters.iter().flat_map(|cluster| &cluster.controllers) {
            let gates = gates.entry(name).or_default();
            match status.gate {
                GateStatus::Open => gates.open += 1,
                GateStatus::Waiting(_) => gates.waiting += 1,
                GateStatus::Blocked(_) => gates.blocked += 1,
            }
            gates.parked += u64::from(status.parked);
        }
        let by_gate = gates.iter().flat_map(|(name, gates)| {
            let name = &***name;
            [
                ([name, "open"], gates.open),
                ([name, "waiting"], gates.waiting),
                ([name, "blocked"], gates.blocked),
            ]
        });
        out.all(names::CONTROLLER_CLUSTERS, by_gate)?;
        out.each(names::CONTROLLER_PARKED, &gates, |gates| gates.parked)?;
        let depths = all.iter().flat_map(|of| {
            let (name, queue) = (&*of.name, &of.queue);
            [([name, "ready"], queue.ready), ([name, "delayed"], queue.delayed)]
        });
        out.all(names::QUEUE_DEPTH, depths)?;
        let named = || all.iter().map(|controller| (&controller.name, controller));
        out.each(names::QUEUE_OLDEST, named(), |c| {
            c.queue.oldest_wait.unwrap_or_default()
        })?;
        let handles = || named().map(|(name, _)| &**name).zip(&self.controllers);
        out.histograms(names::QUEUE_WAIT, handles(), |handle| {
            handle.0.counters.waits.read()
        })?;
        out.each(names::QUEUE_ADDS, named(), |c| c.counts.requested)?;
        out.each(names::QUEUE_COALESCED, named(), |c| c.counts.coalesced)?;
        out.each(names::RUNNING, named(), |c| c.queue.running)?;
        out.each(names::LONGEST, named(), |c| {
            c.queue.longest_running.as_ref().map_or(0.0, |run| run.seconds)
        })?;
        let results = all.iter().flat_map(|controller| {
            let counts = &controller.counts;
            let counts = [
                ("success", counts.successes),
                ("error", counts.errors),
                ("terminal", counts.terminal),
                ("panic", counts.panics),
                ("timeout", counts.timeouts),
                ("aborted", counts.aborted),
                ("dropped", counts.dropped),
            ];
            counts.map(|(result, count)| ([&*controller.name, result], count))
        });
        out.all(names::RECONCILES, results)?;
        out.histograms(names::DURATION, handles(), |handle| {
            handle.0.counters.durations.read()
        })?;
        out.each(names::RETRIES, named(), |c| c.counts.retries)?;
        out.each(names::UNDECODABLE, named(), |c| c.counts.undecodable)?;
        out.each(names::CALLBACK_PANICS, named(), |c| c.counts.callback_panics)?;
        out.each(names::MISDIRECTED, named(), |c| c.counts.misdirected)?;
        out.each(names::OVERFLOWED, named(), |c| c.counts.overflowed)
    }
}

fn clusters(out: &mut Encoder<'_>, with_series: &[&ClusterReport]) -> fmt::Result {
    let statuses = || with_series.iter().map(|cluster| &cluster.status);
    let states = statuses().map(|of| ([of.name.as_str(), &*of.provider, of.state], 1u64));
    out.all(names::CLUSTER_STATE, states)?;
    let now = SystemTime::now();
    let seconds = |to: SystemTime, from| to.duration_since(from).unwrap_or_default().as_secs_f64();
    // An unknown value has no series: zero would look like a value.
    let ages = statuses().filter_map(|of| Some(([of.name.as_str()], seconds(now, of.last_event?))));
    out.all(names::CLUSTER_LAST_EVENT, ages)?;
    let expiries =
        statuses().filter_map(|of| Some(([of.name.as_str()], seconds(of.credential_expires?, UNIX_EPOCH))));
    out.all(names::CLUSTER_EXPIRY, expiries)?;
    let named = || statuses().map(|of| (of.name.as_str(), of));
    out.each(names::CLUSTER_KINDS, named(), |of| of.kinds.len())?;
    out.each(names::CLUSTER_LISTED, named(), |of| of.kinds_listed)?;
    out.each(names::CLUSTER_BLOCKED, named(), |of| of.kinds_blocked)?;
    let depths = with_series
        .iter()
        .map(|of| ([of.status.name.as_str()], of.queue_depth));
    out.all(names::CLUSTER_QUEUE, depths)?;
    out.each(names::CLUSTER_OBJECTS, named(), |of| of.objects)?;
    out.each(names::CLUSTER_BYTES, named(), |of| of.bytes)
}

/// The watches and objects of a kind in all clusters.
#[derive(Default)]
struct KindTotals {
    watches: u64,
    listed: u64,
    blocked: u64,
    objects: usize,
    bytes: usize,
}

/// The clusters of a controller, by the state of their sync gate.
#[derive(Default)]
struct GateCounts {
    open: u64,
    waiting: u64,
    blocked: u64,
    parked: u64,
}
