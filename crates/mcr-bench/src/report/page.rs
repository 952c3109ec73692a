//! The page.

use std::fmt::Write;

use super::{Line, Machine, Verdict, reasons::reasons};
use crate::row::Row;

const SUITES: [(&str, &str); 14] = [
    (
        "fleet",
        "Every context of a kubeconfig leads to one real kube-apiserver, as a user with a client certificate of its own, so that no TLS \
         sessions or connections are shared. Its ConfigMaps have 1 kB of text each, which differs from one to the next. Measured from \
         the start of the process until the reconciler has received every object of every context once. Variant `sim`: simulated API \
         servers in another process. `go-serial` engages one cluster after the other, as multicluster-runtime does; `go-concurrent` all \
         at once, with one shared REST mapper and without managedFields. `kube-rs` is a client, a watcher and a reflector for each \
         context, made of a cloned kubeconfig; `kube-rs-tuned` parses the CA once, clones nothing, lists from the cache. Go's clients \
         list by watching (streaming lists), which the server counts as no LIST. `floor` is no controller: it opens a TLS session, a \
         LIST and a WATCH for each context and discards the answers. `server CPU s` is the server's own. Idle CPU was measured in the \
         first run, for a minute that began a minute after the sync, and memory at its end; elsewhere memory was measured after six \
         seconds.",
    ),
    (
        "store",
        "`configmap`, `pod`, `deployment`, `custom`: allocated bytes of an object in mcr's store, for each byte of its JSON without \
         managedFields; beside it that JSON's size, and how long reading and decoding one takes. `kB a cluster`: what one more of 1,000 \
         clusters with one object adds to resident memory.",
    ),
    (
        "update",
        "One object is written a hundred times while all contexts watch it; measured from the API server's answer to the write until \
         each cluster's reconciler receives it, or for `floor` until its bytes are there. Variant `core` is mcr's own share: it gets \
         events of 100 clusters as bytes, without sockets and TLS, measured until their reconcile is called; `value` is events a second.",
    ),
    (
        "work",
        "A reconciler that applies one ConfigMap of 1 kB for each request, server-side, with 64 reconciles at once for every subject. \
         All contexts watch the same objects in one namespace of one real API server, and each applies into a namespace of its own. 25 \
         seconds after the sync each object is written once. `value` is reconciles a second, from the first of these writes until the \
         answer to the last apply; CPU and server CPU are of that time. `missed` is applies that failed, and ConfigMaps that the server \
         does not have afterwards, or with other content.",
    ),
    (
        "kinds",
        "As `fleet`, with ten kinds in each cluster: ConfigMaps, Secrets, Services, ServiceAccounts, Pods, Deployments, Roles, \
         RoleBindings, Events and Namespaces. `objects each` is all kinds together. mcr has a controller for each kind; Go has an \
         informer for each in its one cache for each cluster, and one controller over all; kube-rs a watcher and a reflector for each. \
         In Go all watches of a cluster share one HTTP/2 connection; with mcr and kube-rs each watch has its own. `go-concurrent` and \
         `kube-rs-tuned` drop managedFields. Memory was measured half a minute after the sync.",
    ),
    (
        "large",
        "Simulated clusters with many Pods of 4 to 8 kB and 3 to 5 kB of managedFields. They are the same in every run, and those of one \
         cluster differ from those of the others; replicas of one workload share its template, five on average. All subjects work as in \
         `kinds`.",
    ),
    (
        "shared-scope",
        "Namespaces of one API server as clusters. `bytes` and `rss_bytes`: allocated and resident memory of one cluster beyond its \
         objects, before its client is used; `engage_us`: until one more is in the fleet, `cpu_us`: CPU of one that joins, reconcile \
         included; `all_s`: until all were reconciled.",
    ),
    (
        "discovery",
        "A thousand simulated clusters that a provider finds in a simulated hub, each with one ConfigMap. With Cluster API there are \
         four more Secrets for each cluster. `_s`: from the start of the fleet until all were reconciled; `code` is code that announces \
         the same clusters. `cluster-inventory` reads ClusterProfiles and runs a plugin for each, a shell script; `code-plugin` and \
         `kubeconfig-plugin` have kubeconfigs that name the same plugin. `cluster-inventory-secrets` reads ClusterProfiles and their \
         kubeconfigs in Secrets. `_bytes`: allocated memory for each cluster beyond that of `code`, and with plugins beyond that of \
         `code-plugin`.",
    ),
    (
        "workspaces",
        "Workspaces of a double of kcp with two shards, each with an APIBinding and one ConfigMap; `LISTs` and `WATCHes` are those of \
         both kinds at both shards. `all_s`: from the start of the fleet until all were reconciled; `bytes`: allocated memory of each, \
         its APIBinding and its ConfigMap included; `engage_us`: from the announcement of one more until it is in the fleet; \
         `join_cpu_us`: all CPU of mcr for one more, from its APIBinding to its first reconcile; `event_cpu_us`: of a change of a \
         ConfigMap, reconcile included. `lost_`: a shard with half of them goes and comes back without its history: how long until all \
         are Ready, how often each kind was listed, what was reconciled and reported as deleted (one object had changed).",
    ),
    (
        "churn",
        "100 clusters stay, of another 400 half is there; each second the 200 leave and the other 200 join. Latency is that of those \
         that stay; `lists` is LISTs a second, `value` the growth of the live heap in percent a minute.",
    ),
    (
        "isolation",
        "A fifth of the clusters fail from the start on, in the way that the variant names. `synced_s` is until all objects of the \
         others were received, latency is of writes to the others.",
    ),
    (
        "fairness",
        "4 workers, 5 ms a reconcile. 19 clusters are written to ten times a second; in the `storm` one more is written to a thousand \
         times a second. Latency is that of the 19.",
    ),
    (
        "queue",
        "`value` is pushes and pops a second of one core, `objects` is keys in each cluster.",
    ),
    (
        "sync",
        "ConfigMaps of 1 kB in each of 500 simulated clusters are copied to one more. `mcr-sync` mirrors them. `kube-rs-by-hand` does \
         the same on kube-rs: a controller for each source cluster, kube's helper for finalizers, a GET of the target before each write, \
         preconditions, one watch of all targets for drift. It keeps no record of placements and of owned fields. Both run 64 reconciles \
         at once. `initial`: from the start of the process until the last object is there; `value` is objects a second. `burst`: 10,000 \
         edits of random sources, until all targets are as their sources; `value` is writes, of which a later one may carry several \
         edits. `restart`: a new process finds everything as it should be; CPU of 20 s, `value` is writes. `bytes an object`: resident \
         memory then beyond that with 500 empty clusters. `a cluster joins`: a source cluster without objects comes to the 500. The \
         simulator shares the cores.",
    ),
];

type Column = (&'static str, fn(&Row) -> Option<String>);
type Figure = (&'static str, fn(&Row) -> Option<f64>);

fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

const COLUMNS: [Column; 18] = [
    ("subject", |row| Some(row.subject.clone())),
    ("variant", |row| {
        Some(row.variant.clone()).filter(|variant| !variant.is_empty())
    }),
    ("clusters", |row| Some(row.clusters.to_string())),
    ("objects each", |row| Some(row.objects.to_string())),
    ("synced s", |row| row.synced_s.map(rounded)),
    ("RSS idle MB", |row| Some(rounded(row.rss_idle_kb? / 1000.0))),
    ("RSS peak MB", |row| Some(rounded(row.rss_peak_kb? / 1000.0))),
    ("CPU s", |row| row.cpu_s.map(rounded)),
    ("server CPU s", |row| row.server_cpu_s.map(rounded)),
    ("idle CPU %", |row| Some(rounded(100.0 * row.idle_cpu?))),
    ("file descriptors", |row| row.fds.map(rounded)),
    ("LISTs", |row| row.lists.map(rounded)),
    ("WATCHes", |row| row.watches.map(rounded)),
    ("p50 ms", |row| row.p50_ms.map(rounded)),
    ("p99 ms", |row| row.p99_ms.map(rounded)),
    ("missed", |row| row.missed.map(rounded)),
    ("value", |row| row.value.map(rounded)),
    ("", |row| {
        row.skipped.as_ref().map(|why| format!("skipped: {why}"))
    }),
];

fn table(rows: &[&Row]) -> String {
    let used: Vec<&Column> = COLUMNS
        .iter()
        .filter(|(_, cell)| rows.iter().any(|row| cell(row).is_some()))
        .collect();
    let names: Vec<&str> = used.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| {} |\n|{}\n", names.join(" | "), " --- |".repeat(names.len()));
    for row in rows {
        let cells: Vec<String> = used
            .iter()
            .map(|(_, cell)| cell(row).unwrap_or_default())
            .collect();
        // Writing to a String never fails.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn targets(verdicts: &[Verdict]) -> String {
    let mut text = "| suite | what | target | measured | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for verdict in verdicts {
        let unit = if verdict.unit.is_empty() {
            String::new()
        } else {
            format!(" {}", verdict.unit)
        };
        let limit = if verdict.least { "at least" } else { "at most" };
        let is = verdict.is.map_or_else(
            || "not measured".to_owned(),
            |is| format!("{}{unit}", rounded(is)),
        );
        let met = match verdict.met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {limit} {}{unit} | {is} | {met} |",
            verdict.suite,
            verdict.what,
            rounded(verdict.limit)
        );
    }
    text.push_str(&reasons(verdicts));
    text
}

/// One line for each subject over the sizes of `fleet` on a real server.
pub(super) fn lines(rows: &[Row], figure: impl Fn(&Row) -> Option<f64>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| row.suite == "fleet" && row.variant.is_empty())
    {
        let Some(value) = figure(row) else { continue };
        let point = (row.clusters as f64, value);
        match lines.iter_mut().find(|line| line.name == row.subject) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: row.subject.clone(),
                points: vec![point],
            }),
        }
    }
    // Measured at one size only.
    lines.retain(|line| line.name != "floor");
    for line in &mut lines {
        line.points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    lines
}

/// The floor beside the figures of the ratios: it shows how far mcr could still improve.
fn limits(rows: &[Row]) -> String {
    let find = |suite: &str, subject: &str| {
        rows.iter().find(|row| {
            let what = (row.suite.as_str(), row.subject.as_str(), row.variant.as_str());
            what == (suite, subject, "") && row.clusters == 500
        })
    };
    let fleet = |subject: &str| find("fleet", subject);
    let (Some(mcr), Some(floor)) = (fleet("mcr"), fleet("floor")) else {
        return String::new();
    };
    let mut text = "| what | floor | mcr | floor, of kube-rs-tuned | floor, of go-serial | mcr, of floor |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let of_fleet: [Figure; 3] = [
        ("time until all is synced, s", |row| row.synced_s),
        ("CPU until synced, s", |row| row.cpu_s),
        ("idle memory, MB", |row| Some(row.rss_idle_kb? / 1000.0)),
    ];
    let of_update: [Figure; 2] = [
        ("one write seen by all, median, ms", |row| row.p50_ms),
        ("one write seen by all, p99, ms", |row| row.p99_ms),
    ];
    let figures = of_fleet.map(|figure| ("fleet", figure)).into_iter();
    for (suite, (what, figure)) in figures.chain(of_update.map(|figure| ("update", figure))) {
        let of = |subject: &str| find(suite, subject).and_then(figure);
        let (Some(own), Some(least)) = (of("mcr"), of("floor")) else {
            continue;
        };
        let part = |subject: &str| of(subject).map_or_else(String::new, |other| rounded(least / other));
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {} | {} |",
            rounded(least),
            rounded(own),
            part("kube-rs-tuned"),
            part("go-serial"),
            rounded(own / least)
        );
    }
    let json = rows.iter().find(|row| row.variant == "configmap json bytes");
    if let Some(json) = json.and_then(|row| row.value) {
        let objects = (mcr.clusters * mcr.objects) as f64;
        let of = |subject: &str| Some(objects * json / 1000.0 / fleet(subject)?.rss_idle_kb?);
        let part = |subject: &str| of(subject).map_or_else(|| "?".to_owned(), rounded);
        let _ = writeln!(
            text,
            "\nThe {objects} objects themselves are {} MB of JSON without managedFields: {} of what go-serial takes in all, and {} of what \
             kube-rs-tuned does.",
            rounded(objects * json / 1e6),
            part("go-serial"),
            part("kube-rs-tuned"),
        );
        if let (Some(own), Some(least)) = (mcr.rss_idle_kb, floor.rss_idle_kb) {
            let least = least + objects * json / 1000.0;
            let _ = writeln!(
                text,
                "With the floor's connections and program that makes {} MB; mcr takes {} of it.",
                rounded(least / 1000.0),
                rounded(own / least),
            );
        }
    }
    format!("## What is left to be won\n\n{text}\n")
}

/// The page as Markdown.
pub fn page(rows: &[Row], verdicts: &[Verdict], machine: &Machine) -> String {
    let versions: Vec<String> = machine
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut text = format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench` on {}: {}, {} cores, {} GB, {}.\n{}.\n\n\
         Each subject runs in a process of its own and does the same job; the kernel reports its memory and CPU time. Each family is a \
         program of its own, as it would be deployed: `mcr`, both of kube-rs, both of Go, the floor; those in Rust are built with the \
         profile `deployed` (fat LTO, one codegen unit). Each has its default runtime, tokio's or Go's, with a thread for each core \
         (variant `threads N`: with so many); the server shares the cores. Subjects take turns within a run, figures are medians of the \
         runs. `cargo xtask bench fleet --kubeconfig FILE` measures on clusters of yours.\n\n\
         ## Targets\n\n\
         Ratios are of one call on one machine. Suites that the last call did not measure keep the rows of an earlier call, which may have run on another machine.\n\n{}\n",
        machine.date,
        machine.processor,
        machine.cores,
        machine.memory_gb,
        machine.kernel,
        versions.join(", "),
        targets(verdicts),
    );
    text.push_str(&limits(rows));
    for (suite, about) in SUITES {
        let own: Vec<&Row> = rows.iter().filter(|row| row.suite == suite).collect();
        if own.is_empty() {
            continue;
        }
        let runs = own.iter().map(|row| row.runs).max().unwrap_or_default();
        let _ = write!(
            text,
            "## {suite}\n\n{about} Medians of {runs} runs.\n\n{}\n",
            table(&own)
        );
        if suite == "fleet" {
            text.push_str("![Memory over the number of clusters](benchmarks/memory.svg)\n\n![Time over the number of clusters](benchmarks/time.svg)\n\n");
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_columns_that_are_used_and_reports_what_was_skipped() {
        let rows = [
            Row {
                synced_s: Some(1.234),
                ..Row::new("fleet", "mcr", 500, 102)
            },
            Row::skipped("fleet", "go-serial", 500, 102, "no Go"),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(
            table(&rows),
            "| subject | clusters | objects each | synced s |  |\n| --- | --- | --- | --- | --- |\n\
             | mcr | 500 | 102 | 1.23 |  |\n| go-serial | 500 | 102 |  | skipped: no Go |\n"
        );
    }

    #[test]
    fn lines_go_from_few_to_many_clusters_of_real_servers_only() {
        let row = |subject: &str, clusters, variant: &str| Row {
            variant: variant.to_owned(),
            synced_s: Some(clusters as f64),
            ..Row::new("fleet", subject, clusters, 102)
        };
        let rows = [
            row("mcr", 500, ""),
            row("mcr", 50, ""),
            row("mcr", 5_000, "sim"),
            row("kube-rs", 50, ""),
        ];
        let lines = lines(&rows, |row| row.synced_s);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].points, [(50.0, 50.0), (500.0, 500.0)]);
    }

    #[test]
    fn what_is_left_is_reported_beside_what_nobody_can_save() {
        let row = |subject: &str, synced: f64, rss: f64| Row {
            synced_s: Some(synced),
            rss_idle_kb: Some(rss),
            ..Row::new("fleet", subject, 500, 102)
        };
        let write = |subject: &str, p99: f64| Row {
            p99_ms: Some(p99),
            ..Row::new("update", subject, 500, 10)
        };
        let json = Row {
            variant: "configmap json bytes".to_owned(),
            value: Some(1_000.0),
            ..Row::new("store", "mcr", 1, 4_000)
        };
        let rows = [
            row("mcr", 1.2, 120_000.0),
            row("kube-rs-tuned", 2.0, 400_000.0),
            row("floor", 1.0, 40_000.0),
            json,
            write("mcr", 7.0),
            write("floor", 6.0),
            write("go-serial", 15.0),
        ];
        let text = limits(&rows);
        assert!(
            text.contains("| time until all is synced, s | 1.00 | 1.20 | 0.50 |  | 1.20 |"),
            "{text}"
        );
        assert!(
            text.contains("| one write seen by all, p99, ms | 6.00 | 7.00 |  | 0.40 | 1.17 |"),
            "{text}"
        );
        assert!(
            text.contains("The 51000 objects themselves are 51.0 MB"),
            "{text}"
        );
        assert!(
            text.contains("? of what go-serial takes in all, and 0.13 of what"),
            "{text}"
        );
        assert_eq!(limits(&rows[..2]), "");
    }

    #[test]
    fn the_page_reports_what_was_missed_and_what_was_not_measured() {
        let rows = [Row {
            value: Some(5e5),
            ..Row::new("queue", "mcr", 1_000, 100)
        }];
        let text = page(&rows, &super::super::verdicts(&rows), &Machine::default());
        assert!(text.contains("| queue | pushes and pops with 1,000 clusters x 100 keys | at least 1000000 /s | 500000 /s | **missed** |"));
        assert!(text.contains("| not measured |  |"));
        assert!(text.contains("## queue") && !text.contains("## churn"));
    }
}
