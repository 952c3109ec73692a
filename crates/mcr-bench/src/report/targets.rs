//! The targets, and whether rows meet them. The figures of a ratio come from one call, so that the machine does not
//! matter.

use crate::row::Row;

/// One target and its measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The suite.
    pub suite: &'static str,
    /// The compared figures.
    pub what: String,
    /// The upper limit, or the lower limit if `least` is set.
    pub limit: f64,
    /// Whether `limit` is a lower limit.
    pub least: bool,
    /// The measured value. `None` if it was not measured.
    pub is: Option<f64>,
    /// The unit; empty for ratios.
    pub unit: &'static str,
}

impl Verdict {
    /// Whether the target is met. `None` if it was not measured.
    pub fn met(&self) -> Option<bool> {
        self.is.map(|is| {
            if self.least {
                is >= self.limit
            } else {
                is <= self.limit
            }
        })
    }
}

type Field = fn(&Row) -> Option<f64>;

/// The rows of one verdict.
struct Of<'a> {
    rows: &'a [Row],
    suite: &'static str,
    clusters: usize,
}

impl Of<'_> {
    fn row(&self, subject: &str, variant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| {
            let what = (row.suite.as_str(), row.subject.as_str(), row.variant.as_str());
            what == (self.suite, subject, variant) && (self.clusters == 0 || row.clusters == self.clusters)
        })
    }

    fn of(&self, subject: &str, variant: &str, field: Field) -> Option<f64> {
        field(self.row(subject, variant)?)
    }

    fn at_most(&self, what: impl Into<String>, limit: f64, unit: &'static str, is: Option<f64>) -> Verdict {
        Verdict {
            suite: self.suite,
            what: what.into(),
            limit,
            least: false,
            is,
            unit,
        }
    }

    /// The ratio of mcr's figure to that of another subject.
    fn ratio(&self, what: &str, other: &str, variant: &str, limit: f64, field: Field) -> Verdict {
        let is = self.of("mcr", variant, field).zip(self.of(other, variant, field));
        let is = is.and_then(|(own, others)| (others > 0.0).then_some(own / others));
        self.at_most(format!("{what}, of {other}'s"), limit, "", is)
    }
}

/// The limit for p99, from the p99 of an undisturbed run: a quarter more, or ten milliseconds.
fn undisturbed(quiet: f64) -> f64 {
    (1.25 * quiet).max(quiet + 10.0)
}

/// Every target with what was measured, in the order of the suites.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let mut all = fleet(rows);
    all.extend(store(rows));
    all.extend(update(rows));
    all.extend(large(rows));
    all.extend(scope(rows));
    all.extend(discovery(rows));
    all.extend(workspaces(rows));
    all.extend(churn(rows));
    all.extend(isolation(rows));
    all.extend(fairness(rows));
    all.extend(queue(rows));
    all
}

fn fleet(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "fleet",
        clusters: 500,
    };
    let (time, cpu, memory): (Field, Field, Field) =
        (|row| row.synced_s, |row| row.cpu_s, |row| row.rss_idle_kb);
    let peak = of.of("mcr", "", |row| Some(row.rss_peak_kb? / row.rss_idle_kb?));
    vec![
        of.ratio("time until all is synced", "go-serial", "", 1.0 / 45.0, time),
        of.ratio("time until all is synced", "go-concurrent", "", 0.5, time),
        of.ratio("time until all is synced", "kube-rs-tuned", "", 1.10, time),
        of.ratio("CPU until synced", "go-serial", "", 0.18, cpu),
        of.ratio("CPU until synced", "kube-rs-tuned", "", 0.95, cpu),
        of.ratio("idle memory", "go-serial", "", 1.0 / 6.0, memory),
        of.ratio("idle memory", "kube-rs-tuned", "", 1.0 / 4.0, memory),
        of.at_most("peak memory, of idle", 1.1, "", peak),
    ]
}

fn store(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "store",
        clusters: 0,
    };
    let value: Field = |row| row.value;
    let mut all = vec![of.at_most(
        "memory of a cluster and kind beyond its objects",
        40.0,
        "kB",
        of.of("mcr", "kB a cluster", value),
    )];
    for kind in ["configmap", "pod", "deployment", "custom"] {
        all.push(of.at_most(
            format!("memory of an object ({kind}), of its JSON"),
            1.3,
            "",
            of.of("mcr", kind, value),
        ));
    }
    all
}

fn update(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "update",
        clusters: 0,
    };
    let p99: Field = |row| row.p99_ms;
    let core = of.row("mcr", "core");
    let rate = core.and_then(|row| row.value);
    let share = Verdict {
        least: true,
        ..of.at_most(
            "events a second while mcr's own share is measured",
            9_500.0,
            "/s",
            rate,
        )
    };
    vec![
        of.ratio("one write seen by all, p99", "go-serial", "", 0.5, p99),
        of.ratio("one write seen by all, p99", "go-concurrent", "", 0.5, p99),
        of.at_most("mcr's own share, p99", 1.0, "ms", core.and_then(|row| row.p99_ms)),
        share,
    ]
}

fn large(rows: &[Row]) -> Vec<Verdict> {
    let of = |clusters| Of {
        rows,
        suite: "fleet",
        clusters,
    };
    let each = |clusters| of(clusters).of("mcr", "sim", |row| Some(row.rss_idle_kb? / row.clusters as f64));
    let large = of(5_000);
    let memory = large.of("mcr", "sim", |row| Some(row.rss_idle_kb? / 1000.0));
    let idle = large.of("mcr", "sim", |row| Some(100.0 * row.idle_cpu?));
    let growth = each(5_000).zip(each(500)).map(|(large, small)| large / small);
    vec![
        large.at_most("memory of 5,000 clusters x 20", 450.0, "MB", memory),
        large.at_most("CPU of 5,000 idle clusters", 2.0, "% of a core", idle),
        large.at_most("memory of one of 5,000 clusters, of one of 500", 1.2, "", growth),
    ]
}

fn scope(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "shared-scope",
        clusters: 0,
    };
    let value: Field = |row| row.value;
    vec![
        of.at_most(
            "watches of 10,000 namespaces",
            1.0,
            "",
            of.of("mcr", "bytes", |row| row.watches),
        ),
        of.at_most(
            "memory of one beyond its objects",
            6_000.0,
            "B",
            of.of("mcr", "bytes", value),
        ),
        of.at_most(
            "time to engage one more",
            100.0,
            "us",
            of.of("mcr", "engage_us", value),
        ),
    ]
}

fn discovery(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "discovery",
        clusters: 0,
    };
    let figure = |variant| of.of("mcr", variant, |row| row.value);
    let time = figure("cluster-api_s").zip(figure("kubeconfig_s"));
    let bytes = |what, variant| of.at_most(what, 3_000.0, "B", figure(variant));
    vec![
        of.at_most(
            "until all Clusters of Cluster API are reconciled, of as many Secrets with kubeconfigs",
            1.3,
            "",
            time.map(|(clusters, secrets)| clusters / secrets),
        ),
        bytes(
            "memory of the provider cluster-api for a cluster",
            "cluster-api_bytes",
        ),
        bytes(
            "memory of the provider kubeconfig for a cluster",
            "kubeconfig_bytes",
        ),
    ]
}

fn workspaces(rows: &[Row]) -> Vec<Verdict> {
    let of = |clusters| Of {
        rows,
        suite: "workspaces",
        clusters,
    };
    let (few, all) = (of(100), of(10_000));
    let value: Field = |row| row.value;
    let figure = |variant| all.of("mcr", variant, value);
    let growth = |what: &str, variant| {
        let of_few = few.of("mcr", variant, value);
        let is = figure(variant).zip(of_few).map(|(all, few)| all / few);
        all.at_most(format!("{what} among 10,000, of 100"), 1.25, "", is)
    };
    vec![
        all.at_most(
            "watches of two kinds of 10,000 workspaces on two shards",
            4.0,
            "",
            all.of("mcr", "bytes", |row| row.watches),
        ),
        all.at_most(
            "memory of one, its APIBinding and a ConfigMap included",
            6_000.0,
            "B",
            figure("bytes"),
        ),
        all.at_most("time to engage one more", 100.0, "us", figure("engage_us")),
        growth("CPU of one more", "join_cpu_us"),
        growth("CPU of an event", "event_cpu_us"),
        all.at_most(
            "LISTs of each kind for a shard that was lost",
            1.0,
            "",
            figure("lost_lists"),
        ),
        all.at_most("deletions told of it", 0.0, "", figure("lost_deletes")),
    ]
}

fn churn(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "churn",
        clusters: 0,
    };
    let p99: Field = |row| row.p99_ms;
    let quiet = of.of("mcr", "quiet", p99);
    vec![
        of.at_most(
            "objects missed",
            0.0,
            "",
            of.of("mcr", "churning", |row| row.missed),
        ),
        of.at_most(
            "growth of the live heap",
            1.0,
            "% a minute",
            of.of("mcr", "churning", |row| row.value),
        ),
        of.at_most(
            "p99 of the others",
            quiet.map_or(0.0, undisturbed),
            "ms",
            quiet.and(of.of("mcr", "churning", p99)),
        ),
    ]
}

fn isolation(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "isolation",
        clusters: 0,
    };
    let quiet = of.of("mcr", "none", |row| row.p99_ms);
    let limit = quiet.map_or(0.0, undisturbed);
    let faults = rows.iter().filter(|row| {
        (row.suite.as_str(), row.subject.as_str()) == ("isolation", "mcr") && row.variant != "none"
    });
    // A subject that never synced misses its target.
    let verdict = |row: &Row| {
        of.at_most(
            format!("p99 of the others, a fifth {}", row.variant),
            limit,
            "ms",
            quiet.map(|_| row.p99_ms.unwrap_or(f64::INFINITY)),
        )
    };
    faults.map(verdict).collect()
}

fn fairness(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "fairness",
        clusters: 0,
    };
    let p99: Field = |row| row.p99_ms;
    let is = of.of("mcr", "storm", p99).zip(of.of("mcr", "quiet", p99));
    vec![of.at_most(
        "p99 of the others in the storm, of p99 without",
        2.0,
        "",
        is.map(|(storm, quiet)| storm / quiet),
    )]
}

fn queue(rows: &[Row]) -> Vec<Verdict> {
    let rate = |clusters| {
        Of {
            rows,
            suite: "queue",
            clusters,
        }
        .of("mcr", "", |row| row.value)
    };
    let of = Of {
        rows,
        suite: "queue",
        clusters: 0,
    };
    let spread = [10, 100, 1_000, 10_000]
        .map(rate)
        .into_iter()
        .collect::<Option<Vec<f64>>>()
        .map(|rates| {
            let most = rates.iter().copied().fold(0.0, f64::max);
            most / rates.iter().copied().fold(f64::INFINITY, f64::min)
        });
    vec![
        Verdict {
            least: true,
            ..of.at_most(
                "pushes and pops with 1,000 clusters x 100 keys",
                1e6,
                "/s",
                rate(1_000),
            )
        },
        of.at_most(
            "the slowest of 10 to 10,000 clusters, of the fastest",
            1.5,
            "",
            spread,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(verdicts: &'a [Verdict], what: &str) -> &'a Verdict {
        verdicts
            .iter()
            .find(|verdict| verdict.what.contains(what))
            .unwrap()
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let none = verdicts(&[]);
        assert!(none.iter().all(|verdict| verdict.met().is_none()), "{none:?}");
        // A ratio with one of its two figures missing has no value either.
        let half = verdicts(&[Row {
            synced_s: Some(1.0),
            ..Row::new("fleet", "mcr", 500, 102)
        }]);
        assert_eq!(find(&half, "synced, of go-serial").met(), None);
    }

    #[test]
    fn ratios_are_of_the_same_size_and_back_end() {
        let row = |subject: &str, clusters, synced| Row {
            synced_s: Some(synced),
            ..Row::new("fleet", subject, clusters, 102)
        };
        let sim = Row {
            variant: "sim".to_owned(),
            ..row("mcr", 500, 9.0)
        };
        let rows = [
            sim,
            row("mcr", 100, 8.0),
            row("mcr", 500, 1.0),
            row("go-serial", 500, 50.0),
            row("kube-rs-tuned", 500, 0.9),
        ];
        let verdicts = verdicts(&rows);
        assert_eq!(find(&verdicts, "synced, of go-serial").is, Some(0.02));
        assert_eq!(find(&verdicts, "synced, of go-serial").met(), Some(true));
        assert_eq!(find(&verdicts, "synced, of kube-rs-tuned").met(), Some(false));
    }

    #[test]
    fn a_subject_that_never_synced_under_a_fault_misses_the_target() {
        let row = |variant: &str, p99_ms| Row {
            variant: variant.to_owned(),
            p99_ms,
            ..Row::new("isolation", "mcr", 100, 10)
        };
        let verdicts = verdicts(&[
            row("none", Some(4.0)),
            row("slow", Some(13.9)),
            row("silent", None),
        ]);
        assert_eq!(find(&verdicts, "a fifth slow").met(), Some(true));
        assert_eq!(find(&verdicts, "a fifth silent").met(), Some(false));
    }

    #[test]
    fn the_queue_is_as_even_as_its_slowest_and_fastest() {
        let row = |clusters, value| Row {
            value: Some(value),
            ..Row::new("queue", "mcr", clusters, 1)
        };
        let verdicts = verdicts(&[row(10, 3e6), row(100, 2.5e6), row(1_000, 2e6), row(10_000, 1e6)]);
        assert_eq!(find(&verdicts, "the slowest").is, Some(3.0));
        assert_eq!(find(&verdicts, "1,000 clusters").met(), Some(true));
    }
}
