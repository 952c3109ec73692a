//! Suite `kcp` on the double of kcp, small.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::Path};

use mcr_bench::row::Row;
use mcr_kcp_double::Kcp;
use tokio::process::Command;

/// The rows, by subject and variant.
async fn rows(kubeconfig: &Path, more: &[&str]) -> BTreeMap<(String, String), Vec<Row>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcr-bench"));
    let args = "kcp --clusters 4 --objects 2 --runs 1 --idle 0 --format json";
    command.args(args.split(' ')).args(more);
    command.env("MCR_KCP_KUBECONFIG", kubeconfig).kill_on_drop(true);
    let output = command.output().await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut rows = BTreeMap::<_, Vec<Row>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        rows.entry((row.subject.clone(), row.variant.clone()))
            .or_default()
            .push(row);
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suite_kcp_measures_mcr_and_a_brought_program() {
    let server = Kcp::builder().serve().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("root")).unwrap();
    let brought = folder.path().join("brought");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mcr-bench-kcp"), &brought).unwrap();
    let rows = rows(&kubeconfig, &["--subject", brought.to_str().unwrap()]).await;
    for subject in ["mcr", "brought"] {
        let of = |variant: &str| &rows[&(subject.to_owned(), variant.to_owned())];
        for latency in [
            "bound to engaged",
            "created to reconciled",
            "written to reconciled",
        ] {
            let clusters: Vec<usize> = of(latency).iter().map(|row| row.clusters).collect();
            assert_eq!(clusters, [1, 4], "{subject}: {latency}");
        }
        let tasks: Vec<usize> = of("tasks").iter().map(|row| row.clusters).collect();
        assert_eq!(tasks, [0, 1, 4]);
        let restart = &of("restart")[0];
        assert!(
            restart.synced_s.unwrap() > 0.0 && restart.rss_idle_kb.unwrap() > 1000.0,
            "{restart}"
        );
    }
}

#[test]
fn suite_kcp_reports_what_it_needs() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mcr-bench"));
    let output = command
        .arg("kcp")
        .env_remove("MCR_KCP_KUBECONFIG")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains("MCR_KCP_KUBECONFIG"),
        "{stderr}"
    );
}
