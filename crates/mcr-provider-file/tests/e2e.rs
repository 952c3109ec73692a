//! The contexts of a kubeconfig file that lead to real kind clusters, edited with kubectl. `cargo xtask e2e` runs it.

use std::{path::Path, process::Command, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Controller, Manager, Request};
use mcr_core::ClusterState;
use mcr_provider_file::FileProvider;
use mcr_testkit::{
    e2e::{self, DEADLINE, E2e, E2eCluster},
    waiting::{Background, OrFail, eventually},
};

async fn answer(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    if let Some(namespace) = request.namespace().filter(|_| request.live().is_some()) {
        let maps = request.cluster.namespaced(namespace);
        e2e::answer(&maps, request.name(), request.cluster.name().as_str()).await?;
    }
    Ok(Action::await_change())
}

fn config(e2e: &E2e, file: &Path, args: &[&str]) {
    let mut kubectl = Command::new(e2e.kubectl());
    kubectl.arg("--kubeconfig").arg(file).arg("config").args(args);
    let output = kubectl.output().or_fail();
    let announced = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{kubectl:?}: {announced}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_that_kubectl_removes_and_renames_are_clusters_that_leave_and_join() {
    let Some(e2e) = E2e::from_env() else { return };
    let alpha = e2e.namespace(E2eCluster::Alpha, "file").await;
    let beta = e2e.namespace(E2eCluster::Beta, "file").await;
    let folder = tempfile::tempdir().or_fail();
    let file = folder.path().join("fleet.kubeconfig");
    std::fs::copy(e2e.all_kubeconfig(), &file).or_fail();
    let (in_alpha, in_beta) = (E2eCluster::Alpha.context(), E2eCluster::Beta.context());

    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(alpha.selector()))
        .build(answer, Arc::new(()));
    let provider = FileProvider::builder().file(&file).build().or_fail();
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    alpha.ask("first").await;
    beta.ask("first").await;
    alpha.answered("first", in_alpha).await;
    beta.answered("first", in_beta).await;
    let before = fleet.get(in_alpha).or_fail();
    let left = fleet.get(in_beta).or_fail();

    config(&e2e, &file, &["delete-context", E2eCluster::Beta.context()]);
    eventually(DEADLINE, "a context that is removed leaves", || {
        left.state() == ClusterState::Gone
    })
    .await;
    assert!(
        fleet.get(in_alpha).or_fail().is_same(&before),
        "the other one does not notice"
    );
    beta.ask("while-it-was-away").await;
    std::fs::copy(e2e.all_kubeconfig(), &file).or_fail();
    beta.answered("while-it-was-away", in_beta).await;

    config(
        &e2e,
        &file,
        &["rename-context", E2eCluster::Beta.context(), "renamed"],
    );
    beta.ask("renamed").await;
    beta.answered("renamed", "renamed").await;
    assert!(fleet.get(in_alpha).or_fail().is_same(&before));
    running.stop().await.or_fail();
    alpha.remove().await;
    beta.remove().await;
}
