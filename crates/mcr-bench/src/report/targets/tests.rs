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
fn the_rate_of_work_is_held_to_the_best_of_the_others() {
    let row = |subject: &str, rate, cpu| Row {
        value: Some(rate),
        cpu_s: Some(cpu),
        missed: Some(0.0),
        ..Row::new("work", subject, 500, 20)
    };
    let verdicts = verdicts(&[
        row("mcr", 950.0, 2.0),
        row("kube-rs-tuned", 900.0, 2.5),
        row("go-serial", 800.0, 4.0),
        row("go-concurrent", 1000.0, 3.0),
    ]);
    let of_work = |what: &str| {
        let mut of_work = verdicts.iter().filter(|verdict| verdict.suite == "work");
        of_work.find(|verdict| verdict.what.contains(what)).unwrap()
    };
    assert_eq!(of_work("reconciles a second").is, Some(0.95));
    assert_eq!(of_work("reconciles a second").met(), Some(true));
    assert_eq!(of_work("go-serial").met(), Some(true));
    assert_eq!(of_work("go-concurrent").met(), Some(false));
    assert_eq!(of_work("kube-rs-tuned").is, Some(0.8));
    assert_eq!(of_work("failures").met(), Some(true));
}

#[test]
fn kinds_and_large_pods_are_compared_with_both_peers() {
    let row = |suite: &str, subject: &str, clusters, idle: f64| Row {
        synced_s: Some(idle),
        cpu_s: Some(idle),
        rss_idle_kb: Some(idle),
        rss_peak_kb: Some(idle + 2.0),
        ..Row::new(suite, subject, clusters, 200)
    };
    let verdicts = verdicts(&[
        row("kinds", "mcr", 200, 10.0),
        row("kinds", "go-concurrent", 200, 25.0),
        row("kinds", "kube-rs-tuned", 200, 25.0),
        row("large", "mcr", 5, 10.0),
        row("large", "go-concurrent", 5, 100.0),
        row("large", "kube-rs-tuned", 5, 8.0),
    ]);
    let met = |suite: &str| -> Vec<Option<bool>> {
        let own = verdicts.iter().filter(|verdict| verdict.suite == suite);
        own.map(Verdict::met).collect()
    };
    assert_eq!(met("kinds"), [Some(true), Some(false), Some(true), Some(true)]);
    assert_eq!(
        met("large"),
        [Some(true), Some(false), Some(false), Some(false), Some(false)]
    );
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
