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
        let counts = self.fleet.counts();
        out.one(names::BUILD, [env!("CARGO_PKG_VERSION")], 1u64)?;
        let states = ClusterState::NAMES
            .iter()
            .copied()
            .filter(|state| *state != "Gone");
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
        // Encoded in the order of their descriptions.
        out.family(names::LEADER, |series| match leadership(&self.controllers) {
            Some(leadership) => series.value([], u64::from(leadership.is_held())),
            None => Ok(()),
        })?;
        let duplicates = report
            .clusters
            .iter()
            .filter(|cluster| cluster.status.same_as.is_some());
        out.one(names::DUPLICATES, [], duplicates.count())?;
        out.one(names::WITHOUT_SERIES, [], names.len().saturating_sub(with_series))?;
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
        out.family(names::FAILURES, |series| {
            for (kind, counts) in &counts {
                for (reason, count) in &counts.failures {
                    series.value([kind, reason], *count)?;
                }
            }
            Ok(())
        })
    }

    fn controllers(&self, out: &mut Encoder<'_>, report: &FleetReport) -> fmt::Result {
        let all = &report.controllers;
        let mut gates: BTreeMap<&Arc<str>, GateCounts> = all
            .iter()
            .map(|controller| (&controller.name, GateCounts::default()))
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
                series.value([name, "terminal"], counts.terminal)?;
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
        out.each(names::MISDIRECTED, named(), |c| c.counts.misdirected)?;
        out.each(names::OVERFLOWED, named(), |c| c.counts.overflowed)
    }
}

fn clusters(out: &mut Encoder<'_>, with_series: &[&ClusterReport]) -> fmt::Result {
    out.family(names::CLUSTER_STATE, |series| {
        with_series
            .iter()
            .map(|cluster| &cluster.status)
            .try_for_each(|status| series.value([status.name.as_str(), &status.provider, status.state], 1u64))
    })?;
    let now = SystemTime::now();
    let named = || {
        with_series
            .iter()
            .map(|cluster| (cluster.status.name.as_str(), *cluster))
    };
    // An unknown value has no series: zero would look like a value.
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
