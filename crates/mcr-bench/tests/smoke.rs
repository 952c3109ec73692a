//! The whole way, small: the simulator, every subject that is there, and a row for each.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use mcr_bench::row::Row;

#[test]
fn every_subject_sees_every_object_of_three_simulated_clusters() {
    let bench = Path::new(env!("CARGO_BIN_EXE_mcr-bench"));
    let mut command = Command::new(bench);
    command.args([
        "fleet",
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: Vec<Row> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let subjects: Vec<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(
        subjects,
        ["mcr", "kube-rs", "kube-rs-tuned", "go-serial", "go-concurrent"]
    );
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
