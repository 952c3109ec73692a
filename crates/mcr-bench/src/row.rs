//! The rows of results.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// From the start of the process until the reconciler has seen every object of every cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced_s: Option<f64>,
    /// Resident memory while idle after the sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_idle_kb: Option<f64>,
    /// The peak of the resident memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_peak_kb: Option<f64>,
    /// CPU time until the sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// CPU time of the API server until the sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_s: Option<f64>,
    /// CPU while idle, as a fraction of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cpu: Option<f64>,
    /// File descriptors of the process while idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fds: Option<f64>,
    /// LISTs of the watched kinds that the server counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<f64>,
    /// WATCHes of the watched kinds that the server counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watches: Option<f64>,
    /// Latency from a write to the reconciler, median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// Latency from a write to the reconciler, 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// Writes that never reached a reconciler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<f64>,
    /// A figure of this suite only, in the unit that docs/benchmarks.md names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
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

    /// A row with the reason why there is no figure.
    pub fn skipped(
        suite: &str,
        subject: &str,
        clusters: usize,
        objects: usize,
        why: impl Into<String>,
    ) -> Self {
        Self {
            skipped: Some(why.into()),
            ..Self::new(suite, subject, clusters, objects)
        }
    }

    /// Whether the other row measures the same in another run.
    pub fn is_like(&self, other: &Self) -> bool {
        let what = |row: &Self| {
            (
                row.suite.clone(),
                row.subject.clone(),
                row.variant.clone(),
                row.clusters,
                row.objects,
            )
        };
        what(self) == what(other)
    }

    /// The medians of several runs. `None` if there are no runs.
    pub fn medians(runs: &[Self]) -> Option<Self> {
        let first = runs.first()?;
        let of = |field: fn(&Self) -> Option<f64>| {
            crate::stats::median(&runs.iter().filter_map(field).collect::<Vec<_>>())
        };
        Some(Self {
            runs: runs.len(),
            synced_s: of(|row| row.synced_s),
            rss_idle_kb: of(|row| row.rss_idle_kb),
            rss_peak_kb: of(|row| row.rss_peak_kb),
            cpu_s: of(|row| row.cpu_s),
            server_cpu_s: of(|row| row.server_cpu_s),
            idle_cpu: of(|row| row.idle_cpu),
            fds: of(|row| row.fds),
            lists: of(|row| row.lists),
            watches: of(|row| row.watches),
            p50_ms: of(|row| row.p50_ms),
            p99_ms: of(|row| row.p99_ms),
            missed: of(|row| row.missed),
            value: of(|row| row.value),
            ..first.clone()
        })
    }
}

/// One line for people: the suite, subject and variant, and the figures of the row.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            suite,
            subject,
            variant,
            clusters,
            objects,
            ..
        } = self;
        write!(
            f,
            "{suite:<12} {subject:<13} {variant:<20} {clusters:>6} x {objects:<6}"
        )?;
        let figures = [
            ("synced", self.synced_s, "s"),
            ("idle", self.rss_idle_kb.map(|kb| kb / 1000.0), "MB"),
            ("peak", self.rss_peak_kb.map(|kb| kb / 1000.0), "MB"),
            ("cpu", self.cpu_s, "s"),
            ("server cpu", self.server_cpu_s, "s"),
            ("idle cpu", self.idle_cpu.map(|part| 100.0 * part), "%"),
            ("fds", self.fds, ""),
            ("lists", self.lists, ""),
            ("watches", self.watches, ""),
            ("p50", self.p50_ms, "ms"),
            ("p99", self.p99_ms, "ms"),
            ("missed", self.missed, ""),
            ("value", self.value, ""),
        ];
        for (name, value, unit) in figures {
            if let Some(value) = value {
                write!(f, "  {name} {value:.2}{unit}")?;
            }
        }
        match &self.skipped {
            Some(why) => write!(f, "  SKIPPED: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_leave_out_what_a_run_does_not_report() {
        let run = |synced: Option<f64>, lists| Row {
            synced_s: synced,
            lists: Some(lists),
            ..Row::new("fleet", "mcr", 500, 102)
        };
        let row = Row::medians(&[run(Some(3.0), 1.0), run(None, 2.0), run(Some(1.0), 9.0)]).unwrap();
        assert_eq!(
            (row.runs, row.synced_s, row.lists, row.cpu_s),
            (3, Some(2.0), Some(2.0), None)
        );
        assert_eq!(Row::medians(&[]), None);
    }

    #[test]
    fn a_line_has_only_what_applies_and_is_read_again() {
        let row = Row {
            p99_ms: Some(1.5),
            ..Row::new("update", "go-serial", 2, 3)
        };
        let line = serde_json::to_string(&row).unwrap();
        assert_eq!(
            line,
            r#"{"suite":"update","subject":"go-serial","clusters":2,"objects":3,"runs":0,"p99_ms":1.5}"#
        );
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
    }

    #[test]
    fn a_line_for_people_has_units_and_reports_what_was_skipped() {
        let row = Row {
            synced_s: Some(1.0),
            ..Row::new("fleet", "mcr", 500, 102)
        };
        assert!(row.to_string().ends_with("500 x 102     synced 1.00s"), "{row}");
        let row = Row::skipped("fleet", "go-serial", 500, 102, "no Go");
        assert!(row.to_string().ends_with("SKIPPED: no Go"), "{row}");
    }
}
