//! Promise 8 in a fleet: a hung exec plugin is killed at its deadline; others don't notice; its output is never logged.
#![cfg(unix)]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use mcr::ClusterName;
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::SimCluster,
};

use crate::{
    fleet::{OrFail, PATIENCE, Running, World, alone, noting, p99, spec},
    process::{Log, in_a_process_of_its_own},
};

const CANARY: &str = "canary-of-a-plugin-5d17";
const DEADLINE: Duration = Duration::from_secs(6);

/// The processes of the plugin that were started, one after the other.
fn started(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    let asked = std::process::Command::new("kill")
        .args(["-0", pid])
        .output()
        .or_fail();
    asked.status.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_8_a_hung_plugin_dies_at_its_deadline_unnoticed_by_others_and_unlogged() {
    let _alone = alone().await;
    let name = "promise_8_hung_plugin::promise_8_a_hung_plugin_dies_at_its_deadline_unnoticed_by_others_and_unlogged";
    if !tokio::task::block_in_place(|| in_a_process_of_its_own(name)) {
        return;
    }
    let log = Log::capture();
    let folder = tempfile::tempdir().or_fail();
    let pids = folder.path().join("pids");
    let hung = SimCluster::builder().name("hung").build();
    let server = hung.serve().await.or_fail();
    let script = format!(
        "echo {CANARY}; echo {CANARY} >&2; echo $$ >> '{}'; sleep 600",
        pids.display()
    );
    let plugin = Credentials::Exec {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        env: Vec::new(),
    };
    let kubeconfig = KubeconfigBuilder::new()
        .context("hung", server.url(), server.ca_pem(), plugin)
        .to_yaml();

    const TRIES: usize = 3;
    for tries in 1.. {
        let world = World::new(20, 0, 0).await;
        let begun = Instant::now();
        // It comes first: nobody may wait for it.
        let specs = std::iter::once(spec("hung", &kubeconfig)).chain(world.specs());
        let running = Running::start(specs, noting, |settings| {
            settings.access_policy = std::mem::take(&mut settings.access_policy).plugin_deadline(DEADLINE);
        });
        let before = started(&pids).len();
        for member in &world.healthy {
            running.reconciled(&member.name, "hello", 0, PATIENCE).await;
        }
        let all = begun.elapsed();
        let with = p99(&world.latencies(&running, 100).await);
        let passed = begun.elapsed();
        let pid = loop {
            if let Some(pid) = started(&pids).get(before) {
                break pid.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "the plugin was started");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(
            passed > DEADLINE || is_alive(&pid),
            "it is killed at its deadline of {DEADLINE:?}, not before: {passed:?}"
        );
        // Killed, and said so.
        let reason = loop {
            let snapshot = running.fleet.snapshot();
            let status = snapshot.clusters.iter().find(|cluster| *cluster.name == *"hung");
            if let Some(reason) = status.and_then(|status| status.reason.clone()) {
                break reason;
            }
            assert!(begun.elapsed() < DEADLINE + Duration::from_secs(10), "{status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let killed = begun.elapsed();
        assert!(reason.contains("exec plugin \"sh\""), "{reason}");
        while is_alive(&pid) {
            assert!(
                begun.elapsed() < DEADLINE + Duration::from_secs(10),
                "it is still alive"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let said = running.all_that_is_said();
        assert!(!said.contains(CANARY), "{said}");

        running.clusters.remove(&ClusterName::new("hung").or_fail());
        let without = p99(&world.latencies(&running, 200).await);
        running.stop().await;
        println!(
            "all healthy after {all:?}; p99 {with:?} beside the hung plugin, {without:?} without; {reason} ({killed:?})"
        );
        let limit = without.mul_f64(1.25).max(without + Duration::from_millis(10));
        if all < DEADLINE / 2 && with <= limit {
            break;
        }
        assert!(
            tries < TRIES,
            "in each of {TRIES} tries: start {all:?}, p99 {with:?} instead of {without:?}"
        );
    }
    assert!(!log.with("exec plugin").is_empty(), "the log is captured");
    assert_eq!(log.with(CANARY), [] as [String; 0]);
}
