//! The targets, and whether rows meet them. The figures of a ratio come from one call, so that the machine does not
//! matter.

use super::verdict::{Field, Of, Verdict};
use crate::row::Row;

/// The limit for p99, from the p99 of an undisturbed run: a quarter more, or ten milliseconds.
fn undisturbed(quiet: f64) -> f64 {
    (1.25 * quiet).max(quiet + 10.0)
}

/// Every target with what was measured, in the order of the suites.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let mut all = fleet(rows);
    all.extend(store(rows));
    all.extend(update(rows));
    all.extend(work(rows));
    all.extend(large(rows));
    all.extend(kinds(rows));
    all.extend(large_pods(rows));
    all.extend(scope(rows));
    all.extend(discovery(rows));
    all.extend(workspaces(rows));
    all.extend(churn(rows));
    all.extend(isolation(rows));
    all.extend(fairness(rows));
    all.extend(queue(rows));
    all.extend(sync(rows));
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
        of.at_most(
            "CPU of 500 idle clusters",
            0.2,
            "% of a core",
            of.of("mcr", "", idle_cpu),
        ),
    ]
}

/// Idle CPU in percent of a core.
fn idle_cpu(row: &Row) -> Option<f64> {
    Some(100.0 * row.idle_cpu?)
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

fn work(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "work",
        clusters: 0,
    };
    let (rate, cpu): (Field, Field) = (|row| row.value, |row| row.cpu_s);
    let peers = ["kube-rs-tuned", "go-serial", "go-concurrent"];
    let best = peers.iter().filter_map(|peer| of.of(peer, "", rate));
    let best = best.max_by(f64::total_cmp);
    let is = of.of("mcr", "", rate).zip(best).map(|(own, best)| own / best);
    vec![
        Verdict {
            least: true,
            ..of.at_most("reconciles a second, of the best other's", 0.95, "", is)
        },
        of.ratio("CPU of all reconciles", "go-serial", "", 0.6, cpu),
        of.ratio("CPU of all reconciles", "go-concurrent", "", 0.6, cpu),
        of.ratio("CPU of all reconciles", "kube-rs-tuned", "", 1.0, cpu),
        of.at_most(
            "failures, and ConfigMaps that are missing or wrong",
            0.0,
            "",
            of.of("mcr", "", |row| row.missed),
        ),
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
    let idle = large.of("mcr", "sim", idle_cpu);
    let growth = each(5_000).zip(each(500)).map(|(large, small)| large / small);
    vec![
        large.at_most("memory of 5,000 clusters x 20", 450.0, "MB", memory),
        large.at_most("CPU of 5,000 idle clusters", 0.6, "% of a core", idle),
        large.at_most("memory of one of 5,000 clusters, of one of 500", 1.2, "", growth),
    ]
}

fn kinds(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "kinds",
        clusters: 200,
    };
    let (cpu, memory): (Field, Field) = (|row| row.cpu_s, |row| row.rss_idle_kb);
    vec![
        of.ratio("idle memory", "go-concurrent", "", 0.5, memory),
        of.ratio("idle memory", "kube-rs-tuned", "", 1.0 / 3.0, memory),
        of.ratio("CPU until synced", "go-concurrent", "", 1.0, cpu),
        of.ratio("CPU until synced", "kube-rs-tuned", "", 1.0, cpu),
    ]
}

fn large_pods(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "large",
        clusters: 5,
    };
    let (time, cpu, memory): (Field, Field, Field) =
        (|row| row.synced_s, |row| row.cpu_s, |row| row.rss_idle_kb);
    let peak = of.of("mcr", "", |row| Some(row.rss_peak_kb? / row.rss_idle_kb?));
    vec![
        of.ratio("idle memory", "go-concurrent", "", 0.2, memory),
        of.ratio("idle memory", "kube-rs-tuned", "", 0.2, memory),
        of.at_most("peak memory, of idle", 1.15, "", peak),
        of.ratio("time until all is synced", "kube-rs-tuned", "", 1.0, time),
        of.ratio("CPU until synced", "kube-rs-tuned", "", 1.0, cpu),
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
    let time = |what, variant, other| {
        let both = figure(variant).zip(figure(other));
        of.at_most(what, 1.3, "", both.map(|(is, other)| is / other))
    };
    let bytes = |what, variant| of.at_most(what, 3_000.0, "B", figure(variant));
    vec![
        time(
            "until all Clusters of Cluster API are reconciled, of as many Secrets with kubeconfigs",
            "cluster-api_s",
            "kubeconfig_s",
        ),
        time(
            "until all ClusterProfiles with a plugin are reconciled, of as many Secrets with kubeconfigs that name the plugin",
            "cluster-inventory_s",
            "kubeconfig-plugin_s",
        ),
        time(
            "until all ClusterProfiles with Secrets are reconciled, of the same Secrets alone",
            "cluster-inventory-secrets_s",
            "kubeconfig_s",
        ),
        bytes(
            "memory of the provider cluster-api for a cluster",
            "cluster-api_bytes",
        ),
        bytes(
            "memory of the provider cluster-inventory for a cluster",
            "cluster-inventory_bytes",
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
        all.at_most("deletions reported", 0.0, "", figure("lost_deletes")),
    ]
}

fn sync(rows: &[Row]) -> Vec<Verdict> {
    let of = Of {
        rows,
        suite: "sync",
        clusters: 0,
    };
    let (time, cpu, value): (Field, Field, Field) = (|row| row.synced_s, |row| row.cpu_s, |row| row.value);
    let ratio = |what: &str, variant: &str, field: Field| {
        let both = of
            .of("mcr-sync", variant, field)
            .zip(of.of("kube-rs-by-hand", variant, field));
        let is = both.and_then(|(own, others)| (others > 0.0).then_some(own / others));
        of.at_most(format!("{what}, of kube-rs by hand"), 1.0, "", is)
    };
    vec![
        ratio("time until all is copied", "initial", time),
        ratio("CPU until all is copied", "initial", cpu),
        ratio("time of a burst", "burst", time),
        ratio("CPU of a burst", "burst", cpu),
        ratio("CPU of a restart", "restart", cpu),
        ratio("memory of an object", "bytes an object", value),
        of.at_most(
            "writes of a restart",
            0.0,
            "",
            of.of("mcr-sync", "restart", value),
        ),
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
mod tests;
