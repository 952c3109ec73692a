//! The rows of results.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// A figure of a row, in the unit of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// From the start of the process until the reconciler has seen every object of every cluster.
    SyncedS,
    /// Resident memory while idle after the sync.
    RssIdleKb,
    /// The peak of the resident memory.
    RssPeakKb,
    /// CPU time until the sync.
    CpuS,
    /// CPU time of the API server until the sync.
    ServerCpuS,
    /// CPU while idle, as a fraction of a core.
    IdleCpu,
    /// File descriptors of the process while idle.
    Fds,
    /// LISTs of the watched kinds that the server counted.
    Lists,
    /// WATCHes of the watched kinds that the server counted.
    Watches,
    /// Latency from a write to the reconciler, median.
    P50Ms,
    /// Latency from a write to the reconciler, 99th percentile.
    P99Ms,
    /// Writes that never reached a reconciler.
    Missed,
    /// A figure of this suite only, in the unit that docs/benchmarks.md names.
    Value,
}

impl Figure {
    /// All of them, with the name and the unit in a line for people, the heading of the column, and the size of the shown unit.
    pub const ALL: [(Self, &str, &str, &str, f64); 13] = [
        (Self::SyncedS, "synced", "s", "synced s", 1.0),
        (Self::RssIdleKb, "idle", "MB", "RSS idle MB", 1000.0),
        (Self::RssPeakKb, "peak", "MB", "RSS peak MB", 1000.0),
        (Self::CpuS, "cpu", "s", "CPU s", 1.0),
        (Self::ServerCpuS, "server cpu", "s", "server CPU s", 1.0),
        (Self::IdleCpu, "idle cpu", "%", "idle CPU %", 0.01),
        (Self::Fds, "fds", "", "file descriptors", 1.0),
        (Self::Lists, "lists", "", "LISTs", 1.0),
        (Self::Watches, "watches", "", "WATCHes", 1.0),
        (Self::P50Ms, "p50", "ms", "p50 ms", 1.0),
        (Self::P99Ms, "p99", "ms", "p99 ms", 1.0),
        (Self::Missed, "missed", "", "missed", 1.0),
        (Self::Value, "value", "", "value", 1.0),
    ];
}

/// The figures of one subject: the medians of its runs. With `--format json` each row is one object in a line, without
/// the figures that don't apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// `mcr`, `kube-rs`, `kube-rs-tuned`, `go-serial` or `go-concurrent`.
    pub subject: String,
    /// The variant within the suite: a fault, a kind, a back end, a number of threads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// The number of clusters.
    pub clusters: usize,
    /// The number of objects in each cluster.
    pub objects: usize,
    /// The number of runs from which the medians are made.
    pub runs: usize,
    /// The figures that apply.
    #[serde(flatten)]
    pub figures: BTreeMap<Figure, f64>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Row {
    /// A row without figures.
    pub fn new(suite: &str, subject: &str, clusters: usize, objects: usize) -> Self {
        Self {
            suite: suite.to_owned(),
            subject: subject.to_owned(),
            clusters,
            objects,
            ..Self::default()
        }
    }

    /// The row with this variant.
    #[must_use]
    pub fn variant(mut self, variant: impl Into<String>) -> Self {
        self.variant = variant.into();
        self
    }

    /// The row with a figure, if there is one.
    #[must_use]
    pub fn with(mut self, figure: Figure, value: impl Into<Option<f64>>) -> Self {
        self.figures.extend(value.into().map(|value| (figure, value)));
        self
    }

    /// The row with the reason why there is no figure.
    #[must_use]
    pub fn skipped(mut self, why: impl Into<String>) -> Self {
        self.skipped = Some(why.into());
        self
    }

    /// A figure, if it applies.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).copied()
    }

    /// A row for each of these figures of the suite, with their names as variants. Those called `lists` and `watches` are in each row.
    pub(crate) fn each(&self, mut figures: BTreeMap<String, f64>) -> Vec<Self> {
        let (lists, watches) = (figures.remove("lists"), figures.remove("watches"));
        let row = |(name, value)| {
            let row = self.clone().variant(name).with(Figure::Value, value);
            row.with(Figure::Lists, lists).with(Figure::Watches, watches)
        };
        figures.into_iter().map(row).collect()
    }

    /// Whether the other row measures the same in another run.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.suite, &self.subject, &self.variant) == (&other.suite, &other.subject, &other.variant)
            && (self.clusters, self.objects) == (other.clusters, other.objects)
    }

    /// The medians of several runs. `None` if there are no runs.
    pub fn medians(runs: &[Self]) -> Option<Self> {
        let mut row = runs.first()?.clone();
        row.runs = runs.len();
        for (figure, ..) in Figure::ALL {
            let values: Vec<f64> = runs.iter().filter_map(|run| run.get(figure)).collect();
            row = row.with(figure, crate::stats::median(&values));
        }
        Some(row)
    }
}

/// One line for people: the suite, subject and variant, and the figures of the row.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suite, subject, variant) = (&self.suite, &self.subject, &self.variant);
        let (clusters, objects) = (self.clusters, self.objects);
        write!(
            f,
            "{suite:<12} {subject:<13} {variant:<20} {clusters:>6} x {objects:<6}"
        )?;
        for (figure, name, unit, _, size) in Figure::ALL {
            if let Some(value) = self.get(figure) {
                write!(f, "  {name} {:.2}{unit}", value / size)?;
            }
        }
        match &self.skipped {
            Some(why) => write!(f, "  SKIPPED: {why}"),
            None => Ok(()),
        }
    }
}
