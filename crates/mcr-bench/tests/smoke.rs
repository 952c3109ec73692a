//! The whole way, small: the simulator, every subject that is there, and a row for each.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use mcr_bench::{
    driver::{Job, Programs, Running, Servers, Subject},
    row::{Figure, Row},
    simulator::SimArgs,
};

/// For what happens at once on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);
const BENCH: &str = env!("CARGO_BIN_EXE_mcr-bench");

/// The program of Go, where `cargo xtask bench` has built it; elsewhere its rows have a reason in place of figures.
fn go() -> PathBuf {
    Path::new(BENCH)
        .ancestors()
        .nth(2)
        .unwrap()
        .join("bench/mcr-bench-go")
}

fn programs() -> Programs {
    Programs {
        bench: BENCH.into(),
        go: None,
    }
}

/// Measures once on simulated clusters. Returns whether all was measured, its stderr and the rows.
fn measure(args: &str) -> (bool, String, Vec<Row>) {
    let mut command = Command::new(BENCH);
    command.args(args.split(' '));
    command.args("--backend sim --runs 1 --idle 0 --format json".split(' '));
    command.arg("--go").arg(go());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), stderr, rows)
}

/// The rows of these subjects in their order, those of Go only where it is built.
fn rows_of(args: &str, subjects: &str) -> Vec<Row> {
    let (well, stderr, mut rows) = measure(&format!("{args} --subjects {subjects}"));
    assert!(well, "{stderr}");
    let found: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(found.join(","), subjects, "{stderr}");
    rows.retain(|row| {
        let is_missing = row.subject.starts_with("go") && !go().is_file();
        assert_eq!(row.skipped.is_some(), is_missing, "{row}");
        !is_missing
    });
    rows
}

#[test]
fn every_subject_sees_every_object_of_simulated_clusters() {
    let all = "mcr,kube-rs,kube-rs-tuned,go-serial,go-concurrent,floor";
    let best = "mcr,kube-rs-tuned,go-concurrent";
    for (args, subjects, size, variant, watches) in [
        ("fleet --clusters 3 --objects 5", all, (3, 5), "sim", 3.0),
        ("kinds --clusters 2 --objects 5", best, (2, 50), "sim", 20.0),
        ("large --clusters 2 --objects 30", best, (2, 30), "", 2.0),
    ] {
        for row in rows_of(args, subjects) {
            assert_eq!(
                (row.clusters, row.objects, row.variant.as_str()),
                (size.0, size.1, variant),
                "{row}"
            );
            assert!(args.starts_with(&row.suite), "{row}");
            assert_eq!(row.get(Figure::Watches), Some(watches), "{row}");
            for (figure, least) in [
                (Figure::SyncedS, 0.0),
                (Figure::RssIdleKb, 1000.0),
                (Figure::Fds, 3.0),
            ] {
                assert!(row.get(figure).unwrap() > least, "{row}");
            }
        }
    }
}

/// Simulated API servers compress nothing, and nothing makes them forget what they remember.
#[test]
fn every_subject_syncs_over_a_slow_link() {
    let (well, stderr, rows) = measure("wan --clusters 2 --objects 5 --subjects mcr,kube-rs-tuned");
    assert!(well && rows.len() == 4, "{stderr}");
    for row in rows {
        assert!(["identity", "gzip"].contains(&&*row.variant), "{row}");
        // The handshakes of TCP and TLS and a list, each a round trip.
        assert!(row.get(Figure::SyncedS).unwrap() > 0.14, "{row}");
        assert!(row.get(Figure::Value).unwrap() > 0.01, "{row}");
    }
}

#[test]
fn a_steady_stream_of_events_reaches_all_clusters() {
    let (well, stderr, rows) =
        measure("capacity --clusters 7 --objects 6 --seconds 1 --subjects mcr,kube-rs-tuned");
    assert!(well && rows.len() == 4, "{stderr}");
    for (row, subject) in rows.iter().zip(["mcr", "mcr", "kube-rs-tuned", "kube-rs-tuned"]) {
        assert_eq!(
            (row.subject.as_str(), row.clusters, row.objects),
            (subject, 7, 6),
            "{row}"
        );
    }
    for of_subject in rows.chunks(2) {
        let (sync, events) = (&of_subject[0], &of_subject[1]);
        assert_eq!(sync.get(Figure::Watches), Some(21.0), "{sync}");
        assert!(sync.get(Figure::RssIdleKb).unwrap() > 1_000.0, "{sync}");
        assert_eq!(events.get(Figure::Missed), Some(0.0), "{events}");
        assert!(events.get(Figure::P99Ms).unwrap() > 0.0, "{events}");
        assert!(events.get(Figure::Value).unwrap() > 0.0, "{events}");
    }
}

#[test]
fn every_subject_of_work_applies_all() {
    for row in rows_of("work --clusters 3 --objects 2", "mcr,kube-rs-tuned") {
        assert_eq!(
            (row.suite.as_str(), row.clusters, row.objects),
            ("work", 3, 2),
            "{row}"
        );
        assert_eq!(row.get(Figure::Missed), Some(0.0), "{row}");
        assert!(
            row.get(Figure::Value).unwrap() > 0.0 && row.get(Figure::CpuS).is_some(),
            "{row}"
        );
    }
}

/// No clusters are brought, so `fleet` fails; the suite after it is measured all the same.
#[test]
fn a_suite_that_fails_takes_nothing_away_from_others() {
    let (well, stderr, rows) =
        measure("fleet work --kubeconfig /nowhere --subjects mcr --clusters 1 --objects 1");
    assert!(!well && stderr.contains("FAILED fleet"), "{stderr}");
    assert!(rows.len() == 1 && rows[0].suite == "work", "{stderr}");
}

/// The latency of the floor is compared with that of the subjects, so both must see the same writes.
#[tokio::test]
async fn the_floor_sees_the_writes_that_mcr_sees() {
    let programs = programs();
    let mut sim = Servers::sim(&programs, SimArgs::new(2, 5)).await.unwrap();
    let kubeconfig = sim.kubeconfig.clone();
    let job = Job::new(&kubeconfig, 10);
    for (seq, subject) in [(7, Subject::Mcr), (8, Subject::Floor)] {
        let mut process = Running::subject(subject, &programs, &job).unwrap();
        process.synced(PATIENCE).await.unwrap();
        sim.command(&format!("beat {seq} 0 2")).await.unwrap();
        let (mut seen, begun) = (Vec::new(), Instant::now());
        while seen.len() < 2 && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            seen.extend(process.beats().await.unwrap());
            seen.retain(|beat| beat.seq == seq);
        }
        seen.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        assert!(seen.len() == 2 && seen[0].cluster != seen[1].cluster, "{seen:?}");
        process.stop().await.unwrap();
    }
}

#[tokio::test]
async fn what_mcr_allocates_is_counted_in_a_program_of_its_own() {
    let programs = programs();
    let sim = Servers::sim(&programs, SimArgs::new(2, 5)).await.unwrap();
    for heap in [true, false] {
        let job = Job {
            heap,
            ..Job::new(&sim.kubeconfig, 10)
        };
        let mut process = Running::subject(Subject::Mcr, &programs, &job).unwrap();
        process.synced(PATIENCE).await.unwrap();
        let allocated = process.heap().await.ok();
        assert_eq!(
            allocated.is_some_and(|bytes| bytes > 10_000),
            heap,
            "{allocated:?}"
        );
        process.stop().await.unwrap();
    }
}
