//! Promise 8 in a fleet: a hung exec plugin is killed at its deadline; others don't notice; its output is never logged.
#![cfg(unix)]

use std::{path::Path, time::Duration};

use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::SimCluster,
    waiting::eventually,
};
use tokio::time::Instant;

use crate::{
    fleet::{OrFail, PATIENCE, Running, World, alone, compare, noting, p99, spec},
    process::in_a_process_of_its_own,
};

const CANARY: &str = "canary-of-a-plugin-5d17";
const DEADLINE: Duration = Duration::from_secs(2);
/// No test takes so long: what has this deadline is not killed at it.
const NEVER: Duration = Duration::from_secs(3600);

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
    let log = mcr_testkit::log::Log::of_this_process();
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

    let world = World::new(20, 0, 0).await;
    // It comes first: nobody may wait for it.
    let run = |with_it: bool, deadline: Duration| {
        let it = with_it.then(|| spec("hung", &kubeconfig));
        Running::start(it.into_iter().chain(world.specs()), noting, |settings| {
            settings.access_policy = std::mem::take(&mut settings.access_policy).plugin_deadline(deadline);
            settings.credential_timeout = deadline * 2;
        })
    };
    let new_pid = async |before: usize| {
        eventually(PATIENCE, "the plugin is started", || {
            started(&pids).get(before).cloned()
        })
        .await
    };

    // The others don't notice it, though it may hang for an hour.
    let mut round = 0;
    compare(["p99 of the others"], async |beside_it| {
        round += 1;
        let before = started(&pids).len();
        let running = run(beside_it, NEVER);
        for member in &world.healthy {
            running.reconciled(&member.name, "hello", 0, PATIENCE).await;
        }
        let pid = if beside_it {
            Some(new_pid(before).await)
        } else {
            None
        };
        let latencies = world.latencies(&running, 100 * round).await;
        assert!(pid.is_none_or(|pid| is_alive(&pid)), "it hung all the while");
        running.stop().await;
        [p99(&latencies)]
    })
    .await;

    // It is killed at its deadline, not before, and that is said.
    let before = started(&pids).len();
    let begun = Instant::now();
    let running = run(true, DEADLINE);
    let pid = new_pid(before).await;
    let reason = eventually(PATIENCE, "it is said that it hung", || {
        let snapshot = running.fleet.snapshot();
        let status = snapshot
            .clusters
            .iter()
            .find(|cluster| *cluster.name == *"hung")?;
        status.reason.clone()
    })
    .await;
    assert!(reason.contains("exec plugin \"sh\""), "{reason}");
    assert!(
        begun.elapsed() >= DEADLINE,
        "{reason}, after {:?}",
        begun.elapsed()
    );
    eventually(PATIENCE, "it is killed", || !is_alive(&pid)).await;
    let announced = running.all_reports();
    assert!(!announced.contains(CANARY), "{announced}");
    running.stop().await;
    assert!(!log.lines_with("exec plugin").is_empty(), "the log is captured");
    assert_eq!(log.lines_with(CANARY), [] as [String; 0]);
}
