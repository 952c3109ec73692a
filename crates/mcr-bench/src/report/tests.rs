use super::{machine::locked, *};

fn row(suite: &str, subject: &str, clusters: usize) -> Row {
    Row::new(suite, subject, clusters, 102)
}

fn measured(rows: &[Row]) -> Vec<Verdict> {
    verdicts(rows).unwrap()
}

fn find<'a>(verdicts: &'a [Verdict], suite: &str, what: &str) -> &'a Verdict {
    let mut of_suite = verdicts.iter().filter(|verdict| verdict.suite == suite);
    of_suite.find(|verdict| verdict.what.contains(what)).unwrap()
}

#[test]
fn what_was_not_measured_is_neither_met_nor_missed() {
    let none = measured(&[]);
    assert!(none.iter().all(|verdict| verdict.met().is_none()), "{none:?}");
    // A ratio with one of its two figures missing has no value either.
    let half = measured(&[row("fleet", "mcr", 500).with(Figure::SyncedS, 1.0)]);
    assert_eq!(find(&half, "fleet", "synced, of go-serial").met(), None);
    // A field that is misspelled would be read as none. Each has a limit but those that are held to an undisturbed run.
    let stored: Vec<serde_json::Value> = serde_json::from_str(include_str!("targets.json")).unwrap();
    for target in stored {
        assert!(target["figure"].is_string(), "{target}");
        let limits = ["at_most", "at_least", "undisturbed"].map(|limit| !target[limit].is_null());
        assert_eq!(limits.iter().filter(|is| **is).count(), 1, "{target}");
        assert!(
            target["missed"]
                .as_str()
                .is_none_or(|reason| reason.ends_with('.')),
            "{target}"
        );
    }
}

#[test]
fn ratios_are_of_the_same_size_and_back_end() {
    let of = |subject: &str, clusters, synced| row("fleet", subject, clusters).with(Figure::SyncedS, synced);
    let sim = |clusters, kb: f64| {
        row("fleet", "mcr", clusters)
            .variant("sim")
            .with(Figure::RssIdleKb, kb)
    };
    let verdicts = measured(&[
        of("mcr", 500, 9.0).variant("sim"),
        of("mcr", 100, 8.0),
        of("mcr", 500, 1.0),
        of("go-serial", 500, 50.0),
        of("kube-rs-tuned", 500, 0.9),
        sim(5_000, 400_000.0),
    ]);
    let go = find(&verdicts, "fleet", "synced, of go-serial");
    assert_eq!((go.is, go.met()), (Some(0.02), Some(true)));
    assert_eq!(
        find(&verdicts, "fleet", "synced, of kube-rs-tuned").met(),
        Some(false)
    );
    let memory = find(&verdicts, "fleet", "memory of 5,000 clusters");
    assert_eq!((memory.is, memory.unit.as_str()), (Some(400.0), "MB"));
    let growth = measured(&[sim(5_000, 400_000.0), sim(500, 50_000.0)]);
    assert_eq!(find(&growth, "fleet", "of one of 500").is, Some(0.8));
}

#[test]
fn the_rate_of_work_is_held_to_the_best_of_the_others() {
    let of = |subject: &str, rate, cpu| {
        let row = row("work", subject, 500).with(Figure::Value, rate);
        row.with(Figure::CpuS, cpu).with(Figure::Missed, 0.0)
    };
    let verdicts = measured(&[
        of("mcr", 1020.0, 2.0),
        of("kube-rs-tuned", 900.0, 2.5),
        of("go-serial", 800.0, 4.0),
        of("go-concurrent", 1000.0, 3.0),
    ]);
    let is = |what| find(&verdicts, "work", what).is;
    assert_eq!(is("reconciles a second"), Some(1.02));
    assert_eq!(is("kube-rs-tuned"), Some(0.8));
    let met =
        ["second", "go-serial", "go-concurrent", "failures"].map(|what| find(&verdicts, "work", what).met());
    assert_eq!(met, [true, true, false, true].map(Some));
}

#[test]
fn a_subject_that_never_synced_under_a_fault_misses_the_target() {
    let of = |variant: &str, p99: Option<f64>| {
        row("isolation", "mcr", 100)
            .variant(variant)
            .with(Figure::P99Ms, p99)
    };
    let verdicts = measured(&[of("none", Some(4.0)), of("slow", Some(13.9)), of("silent", None)]);
    assert_eq!(find(&verdicts, "isolation", "a fifth slow").met(), Some(true));
    assert_eq!(find(&verdicts, "isolation", "a fifth silent").met(), Some(false));
}

#[test]
fn the_page_reports_what_was_missed_and_why_and_what_was_not_measured() {
    let queue = |clusters, value: f64| row("queue", "mcr", clusters).with(Figure::Value, value);
    let burst = |subject: &str, cpu| row("sync", subject, 500).variant("burst").with(Figure::CpuS, cpu);
    let rows = [
        queue(10, 4e6),
        queue(1_000, 5e5),
        burst("mcr-sync", 3.0),
        burst("kube-rs-by-hand", 2.0),
    ];
    let text = page(&rows, &measured(&rows), &Machine::default());
    let missed = "with 1,000 clusters x 100 keys | at least 1000000 /s | 500000 /s | **missed** |";
    for wanted in [
        missed,
        "| not measured |  |",
        ": the reason is not known yet.\n",
        "CPU of a burst, of kube-rs by hand: as for the first copies.\n",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(text.contains("## queue\n\n`value` is pushes") && !text.contains("## churn"));
    assert!(!page(&[], &measured(&[]), &Machine::default()).contains("Missed, and why"));
}

#[test]
fn a_table_has_the_columns_that_are_used_and_reports_what_was_skipped() {
    let rows = [
        row("fleet", "mcr", 500).with(Figure::SyncedS, 1.234),
        row("fleet", "go-serial", 500).skipped("no Go"),
    ];
    let text = page(&rows, &[], &Machine::default());
    let table = "| subject | clusters | objects each | synced s |  |\n| --- | --- | --- | --- | --- |\n\
                 | mcr | 500 | 102 | 1.23 |  |\n| go-serial | 500 | 102 |  | skipped: no Go |\n";
    assert!(text.contains(table), "{text}");
}

#[test]
fn what_is_left_is_reported_beside_what_nobody_can_save() {
    let of = |subject: &str, synced: f64, rss: f64| {
        let row = row("fleet", subject, 500).with(Figure::SyncedS, synced);
        row.with(Figure::RssIdleKb, rss)
    };
    let write = |subject: &str, p99: f64| row("update", subject, 500).with(Figure::P99Ms, p99);
    let rows = [
        of("mcr", 1.2, 120_000.0),
        of("kube-rs-tuned", 2.0, 400_000.0),
        of("floor", 1.0, 40_000.0),
        row("store", "mcr", 1)
            .variant("configmap json bytes")
            .with(Figure::Value, 1_000.0),
        write("mcr", 7.0),
        write("floor", 6.0),
        write("go-serial", 15.0),
    ];
    let text = page(&rows, &[], &Machine::default());
    for wanted in [
        "| time until all is synced, s | 1.00 | 1.20 | 0.50 |  | 1.20 |",
        "| one write seen by all, p99, ms | 6.00 | 7.00 |  | 0.40 | 1.17 |",
        "The 51000 objects themselves are 51.0 MB",
        "? of what go-serial takes in all, and 0.13 of what",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn plots_have_a_line_for_each_subject_on_real_servers_from_few_to_many_clusters() {
    let of = |subject: &str, clusters: usize| {
        row("fleet", subject, clusters).with(Figure::SyncedS, clusters as f64)
    };
    let rows = [
        of("mcr", 500),
        of("mcr", 50),
        of("mcr", 5_000).variant("sim"),
        of("kube-rs", 50),
        of("floor", 50),
    ];
    let lines = page::lines(&rows, Figure::SyncedS);
    let wanted = [
        ("kube-rs", vec![(50.0, 50.0)]),
        ("mcr", vec![(50.0, 50.0), (500.0, 500.0)]),
    ];
    assert_eq!(lines, wanted.map(|(name, points)| (name.to_owned(), points)));
    let svg = plot("Time", &lines).unwrap();
    assert!(
        svg.starts_with("<svg ")
            && ["Time", "mcr", "kube-rs", "clusters"]
                .iter()
                .all(|text| svg.contains(text))
    );
}

#[test]
fn a_suite_that_is_measured_again_replaces_itself_only() {
    let variant = |variant: &str| row("fleet", "mcr", 500).variant(variant);
    let old = vec![
        variant(""),
        row("fleet", "go-serial", 500),
        variant("sim"),
        variant("threads 2"),
        row("queue", "mcr", 10),
        row("queue", "mcr", 100),
    ];
    let merged = merge(old, vec![variant(""), row("queue", "mcr", 10)]);
    let wanted = [
        variant("sim"),
        variant("threads 2"),
        variant(""),
        row("queue", "mcr", 10),
    ];
    assert_eq!(merged, wanted);
    let threaded = merge(merged.clone(), vec![variant("threads 2")]);
    assert!(threaded.contains(&variant("")) && threaded.len() == merged.len());
    assert_eq!(rows::read(&rows::write(&merged).unwrap()).unwrap(), merged);
}

#[test]
fn the_version_is_of_the_crate_of_this_name() {
    let lock = "[[package]]\nname = \"kube-core\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"kube\"\nversion = \"5.0.0\"\n";
    assert_eq!([locked(lock, "kube"), locked(lock, "tokio")], ["5.0.0", "?"]);
}
