//! The metrics of a sync.

use std::{fmt, sync::Arc};

use mcr::metrics::prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::memory::Memory;

/// The metrics of one sync, from [`ObjectSync::metrics`](crate::ObjectSync::metrics).
///
/// | metric | meaning |
/// | --- | --- |
/// | `mcr_sync_placements` | the number of targets and copies, by `state` |
/// | `mcr_sync_writes_total` | writes to targets and copies, by `verb` and `result`: `done`, `conflict`, `failed` |
/// | `mcr_sync_oldest_unsynced_seconds` | how long the oldest unsynced source has been unsynced; paused sources don't count |
///
/// A source is unsynced while one of its targets or copies is not up to date, or its status can't be written. The
/// states:
///
/// | state | meaning |
/// | --- | --- |
/// | `synced` | the object is up to date |
/// | `away` | its cluster is away, or its kind can't be listed there |
/// | `silent` | its cluster does not answer in time |
/// | `deleting` | the object is being deleted and waits for its finalizers |
/// | `taken` | an object that the sync must not touch has its name, or names its source |
/// | `failed` | the sync could not write the object |
///
/// Each metric has the label `sync` with the name of the sync.
#[derive(Clone)]
pub struct SyncMetrics {
    pub(crate) sync: Arc<str>,
    pub(crate) memory: Arc<Memory>,
}

impl fmt::Debug for SyncMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncMetrics")
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

impl Collector for SyncMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (figures, sync) = (self.memory.figures(), &*self.sync);
        let mut family = |name, help, kind, series: &mut dyn FnMut(&mut MetricEncoder<'_>) -> fmt::Result| {
            series(&mut encoder.encode_descriptor(name, help, None, kind)?)
        };
        let help = "Targets and copies by state";
        family("mcr_sync_placements", help, MetricType::Gauge, &mut |out| {
            figures.placements.iter().try_for_each(|(state, count)| {
                let value = ConstGauge::new(*count as i64);
                value.encode(out.encode_family(&[("sync", sync), ("state", *state)])?)
            })
        })?;
        let help = "Writes of targets and copies";
        family("mcr_sync_writes", help, MetricType::Counter, &mut |out| {
            figures.writes.iter().try_for_each(|((verb, result), count)| {
                let labels = [("sync", sync), ("verb", *verb), ("result", *result)];
                ConstCounter::new(*count).encode(out.encode_family(&labels)?)
            })
        })?;
        let help = "The longest time for which a source has had an object that is not as it should be";
        family(
            "mcr_sync_oldest_unsynced_seconds",
            help,
            MetricType::Gauge,
            &mut |out| {
                ConstGauge::new(figures.oldest.as_secs_f64()).encode(out.encode_family(&[("sync", sync)])?)
            },
        )
    }
}
