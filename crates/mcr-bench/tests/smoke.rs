//! The whole way, small: the simulator, every subject that is there, and a row for each.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use mcr_bench::{
    driver::{Job, Programs, Running, Subject, sim::Sim},
    row::Row,
};

/// For what happens at once on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);
const BENCH: &str = env!("CARGO_BIN_EXE_mcr-bench");
const SUBJECTS: [&str; 6] = [
    "mcr",
    "kube-rs",
    "kube-rs-tuned",
    "go-serial",
    "go-concurrent",
    "floor",
];

#[test]
fn every_subject_sees_every_object_of_three_simulated_clusters() {
    let bench = Path::new(BENCH);
    let mut command = Command::new(bench);
    command.args([
        "fleet",
        "--subjects",
        &SUBJECTS.join(","),
        "--backend",
        "sim",
        "--clusters",
        "3",
        "--objects",
        "5",
        "--runs",
        "1",
        "--idle",
        "0",
        "--format",
        "json",
    ]);
    // Built by `cargo xtask bench`, where it has run; else its rows say that they were skipped.
    let go = bench.ancestors().nth(2).unwrap().join("bench/mcr-bench-go");
    command.arg("--go").arg(&go);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows: Vec<Row> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let subjects: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(subjects, SUBJECTS);
    for row in &rows {
        if row.subject.starts_with("go") && !go.is_file() {
            assert!(row.skipped.is_some(), "{row}");
            continue;
        }
        assert_eq!(
            (row.clusters, row.objects, row.watches),
            (3, 5, Some(3.0)),
            "{row}"
        );
        assert!(
            row.synced_s.unwrap() > 0.0 && row.rss_idle_kb.unwrap() > 1000.0,
            "{row}"
        );
    }
}

/// kcp has no server here, so it fails; the suite after it is measured all the same.
#[test]
fn every_subject_of_work_applies_all_and_a_suite_that_fails_before_it_takes_nothing_away() {
    let options = "--subjects mcr,kube-rs-tuned --backend sim --clusters 3 --objects 2 --runs 1 --idle 0";
    let output = Command::new(BENCH)
        .args(["kcp", "work", "--format", "json"])
        .args(options.split(' '))
        .env_remove("MCR_KCP_KUBECONFIG")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("FAILED kcp"),
        "{stderr}"
    );
    let rows: Vec<Row> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let subjects: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(subjects, ["mcr", "kube-rs-tuned"], "{stderr}");
    for row in &rows {
        assert_eq!(
            (row.suite.as_str(), row.clusters, row.objects),
            ("work", 3, 2),
            "{row}"
        );
        assert_eq!(row.missed, Some(0.0), "{row}");
        assert!(row.value.unwrap() > 0.0 && row.cpu_s.is_some(), "{row}");
    }
}

/// The rows of a suite on the simulator with two clusters, of all subjects that are there.
fn rows_of(suite: &str, objects: &str) -> Vec<Row> {
    let go = Path::new(BENCH)
        .ancestors()
        .nth(2)
        .unwrap()
        .join("bench/mcr-bench-go");
    let output = Command::new(BENCH)
        .args([
            suite,
            "--subjects",
            "mcr,kube-rs-tuned,go-concurrent",
            "--backend",
            "sim",
        ])
        .args([
            "--clusters",
            "2",
            "--objects",
            objects,
            "--runs",
            "1",
            "--idle",
            "0",
            "--format",
            "json",
        ])
        .arg("--go")
        .arg(&go)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect::<Vec<Row>>();
    let subjects: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(subjects, ["mcr", "kube-rs-tuned", "go-concurrent"], "{stderr}");
    let measured = rows.into_iter().filter(|row| {
        let is_go = row.subject.starts_with("go") && !go.is_file();
        assert_eq!(row.skipped.is_some(), is_go, "{row}");
        !is_go
    });
    measured.collect()
}

#[test]
fn every_subject_sees_every_object_of_ten_kinds() {
    for row in rows_of("kinds", "5") {
        assert_eq!(
            (row.clusters, row.objects, row.watches),
            (2, 50, Some(20.0)),
            "{row}"
        );
        assert_eq!((row.suite.as_str(), row.variant.as_str()), ("kinds", "sim"));
        assert!(row.synced_s.unwrap() > 0.0 && row.fds.unwrap() > 3.0, "{row}");
    }
}

#[test]
fn every_subject_sees_every_large_pod() {
    for row in rows_of("large", "30") {
        assert_eq!(
            (row.clusters, row.objects, row.watches),
            (2, 30, Some(2.0)),
            "{row}"
        );
        assert_eq!((row.suite.as_str(), row.variant.as_str()), ("large", ""));
        assert!(row.rss_idle_kb.unwrap() > 1000.0 && row.cpu_s.is_some(), "{row}");
    }
}

/// The latency of the floor is compared with that of the subjects, so both must see the same writes.
#[tokio::test]
async fn the_floor_sees_the_writes_that_mcr_sees() {
    let programs = Programs {
        bench: BENCH.into(),
        go: None,
    };
    let mut sim = Sim::start(&programs, 2, 5).await.unwrap();
    let kubeconfig = sim.kubeconfig().to_owned();
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
    let programs = Programs {
        bench: BENCH.into(),
        go: None,
    };
    let sim = Sim::start(&programs, 2, 5).await.unwrap();
    let job = |heap| Job {
        heap,
        ..Job::new(sim.kubeconfig(), 10)
    };
    for heap in [true, false] {
        let mut process = Running::subject(Subject::Mcr, &programs, &job(heap)).unwrap();
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
