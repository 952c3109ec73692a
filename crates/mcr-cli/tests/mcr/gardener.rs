//! `mcr clusters` with the provider `gardener`, on a simulated garden.

use mcr_testkit::{garden::Garden, sim::SimCluster, waiting::OrFail};
use serde_json::json;

use crate::harness::User;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shoots_are_shown_with_what_they_wait_for() {
    let garden = SimCluster::builder().name("garden").build();
    garden.create(Garden::crd()).or_fail();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "garden-dev", "labels": {"project.gardener.cloud/name": "dev"}},
    });
    garden.create(namespace).or_fail();
    for (name, environment) in [("one", "prod"), ("two", "test")] {
        let mut shoot = Garden::shoot("garden-dev", name);
        shoot["metadata"]["labels"] = json!({"env": environment});
        shoot["spec"]["hibernation"] = json!({"enabled": true});
        shoot["status"]["hibernated"] = true.into();
        garden.create(shoot).or_fail();
    }
    let garden = garden.serve().await.or_fail();
    let user = User::with([garden.kubeconfig()]);
    let flags = [
        "clusters",
        "--provider",
        "gardener",
        "-n",
        "garden-dev",
        "--timeout",
        "60s",
    ];
    let shown = user
        .mcr([&flags[..], &["-l", "env=prod"]].concat())
        .await
        .ended(0);
    assert_eq!(shown.out.lines().count(), 2, "{}", shown.out);
    for part in ["dev/one", "Suspended", "it is hibernated"] {
        assert!(shown.out.contains(part), "{part}:\n{}", shown.out);
    }
}
