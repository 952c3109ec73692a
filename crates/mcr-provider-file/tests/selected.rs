//! A controller works in the clusters that the labels in a kubeconfig select.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{path::Path, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, ClusterSelector, Controller, Manager, Request};
use mcr_core::ClusterState;
use mcr_provider_file::FileProvider;
use mcr_testkit::{
    sim::{SimCluster, SimServer},
    waiting::{Background, OrFail, eventually},
};

const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

async fn nothing(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    Ok(Action::await_change())
}

/// Writes a kubeconfig with this label, as it is documented.
fn write(folder: &Path, server: &SimServer, env: &str) {
    let (url, token) = (server.url(), server.cluster().admin_token());
    let text = format!(
        "contexts:\n- name: eu\n  context:\n    cluster: eu\n    user: admin\n    extensions:\n    - name: mcr.dev/labels\n      \
         extension: {{env: {env}}}\nclusters:\n- name: eu\n  cluster: {{server: \"{url}\", certificate-authority: ca.pem}}\n\
         users:\n- name: admin\n  user: {{token: {token}}}\n"
    );
    std::fs::write(folder.join("new"), text).or_fail();
    std::fs::rename(folder.join("new"), folder.join("a.kubeconfig")).or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_in_the_file_selects_the_cluster_and_its_change_keeps_the_connection() {
    let server = SimCluster::new().serve().await.or_fail();
    let folder = tempfile::tempdir().or_fail();
    std::fs::write(folder.path().join("ca.pem"), server.ca_pem()).or_fail();
    write(folder.path(), &server, "prod");
    let controller = Controller::<ConfigMap>::new("selects")
        .clusters(ClusterSelector::label("env", "prod"))
        .build(nothing, Arc::new(()));
    let provider = FileProvider::builder().dir(folder.path()).build().or_fail();
    let manager = Manager::builder().provider(provider).controller(controller);
    let manager = manager.build().or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));

    let watches = |count| {
        let cluster = server.cluster().clone();
        move || (cluster.watches() == count).then_some(())
    };
    eventually(DEADLINE, "the selected cluster is watched", watches(1)).await;
    let before = fleet.get("eu").or_fail();
    eventually(DEADLINE, "it is ready", || before.state() == ClusterState::Ready).await;
    let since = |name: &str| {
        let clusters = fleet.snapshot().clusters;
        let of = clusters.into_iter().find(|cluster| cluster.name == name);
        of.map(|cluster| (cluster.labels, cluster.since))
    };
    let (labels, ready_since) = since("eu").unwrap();
    assert_eq!(labels["env"], "prod");

    write(folder.path(), &server, "dev");
    eventually(DEADLINE, "the snapshot shows the new label", || {
        (since("eu")?.0["env"] == "dev").then_some(())
    })
    .await;
    eventually(
        DEADLINE,
        "a cluster that is no longer selected is not watched",
        watches(0),
    )
    .await;
    write(folder.path(), &server, "prod");
    eventually(DEADLINE, "it is watched again", watches(1)).await;
    assert!(fleet.get("eu").or_fail().is_same(&before));
    assert_eq!(since("eu").unwrap().1, ready_since, "it was ready all the time");
    running.stop().await.or_fail();
}
