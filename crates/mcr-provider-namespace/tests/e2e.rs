//! Namespaces of a real kind cluster as clusters. `cargo xtask e2e` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcr::{Action, Controller, Manager, Request};
use mcr_core::{Access, ClusterState, Trust};
use mcr_provider_namespace::NamespaceProvider;
use mcr_testkit::{
    e2e::{self, DEADLINE, E2e, E2eCluster, E2eNamespace},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;

async fn answer(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    // In each of these clusters there is one namespace.
    let namespace = request.cluster.name().as_str();
    assert_eq!(request.namespace(), Some(namespace));
    if request.live().is_some() {
        let maps = request.cluster.namespaced(namespace);
        e2e::answer(&maps, request.name(), namespace).await?;
    }
    Ok(Action::await_change())
}

/// A label that no other namespace of the host has.
async fn label(namespaces: &Api<Namespace>, of: &E2eNamespace, team: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"mcr-e2e-team": team}}}));
    namespaces
        .patch(of.name(), &PatchParams::default(), &patch)
        .await
        .or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_of_a_real_cluster_are_clusters_that_come_and_go() {
    let Some(e2e) = E2e::from_env() else { return };
    let namespaces = Api::<Namespace>::all(e2e.client(E2eCluster::Hub).await);
    let island = e2e.namespace(E2eCluster::Hub, "namespace").await;
    let jungle = e2e.namespace(E2eCluster::Hub, "namespace").await;
    let stranger = e2e.namespace(E2eCluster::Hub, "namespace").await;
    let team = island.name().to_owned();
    label(&namespaces, &island, Some(&team)).await;

    let kubeconfig = std::fs::read(e2e.kubeconfig(E2eCluster::Hub)).or_fail();
    let provider = NamespaceProvider::builder()
        .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
        .labels(format!("mcr-e2e-team={team}"))
        .build()
        .or_fail();
    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(island.selector()))
        .build(answer, Arc::new(()));
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));

    island.ask("first").await;
    island.answered("first", island.name()).await;
    stranger.ask("first").await;
    // One that joins while all runs, and what was there before it.
    jungle.ask("first").await;
    label(&namespaces, &jungle, Some(&team)).await;
    jungle.answered("first", jungle.name()).await;
    assert_eq!(fleet.clusters().len(), 2, "the third has no such label");

    // One that loses its label leaves, and the other stays as it is.
    let (left, before) = (
        fleet.get(jungle.name()).or_fail(),
        fleet.get(island.name()).or_fail(),
    );
    label(&namespaces, &jungle, None).await;
    eventually(DEADLINE, "it leaves", || left.state() == ClusterState::Gone).await;
    assert!(fleet.get(island.name()).or_fail().is_same(&before));

    // Deleted and made anew under its name it is another one.
    namespaces
        .delete(island.name(), &DeleteParams::default())
        .await
        .or_fail();
    eventually(DEADLINE, "it is gone", || before.state() == ClusterState::Gone).await;
    let anew = Namespace {
        metadata: ObjectMeta {
            name: Some(island.name().to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &anew).await.or_fail();
    label(&namespaces, &island, Some(&team)).await;
    island.ask("first").await;
    island.answered("first", island.name()).await;
    let again = fleet.get(island.name()).or_fail();
    assert!(again.epoch() > before.epoch() && again.identity() != before.identity());

    let untouched = stranger.api::<ConfigMap>().get("first").await.or_fail();
    let answer = untouched.data.unwrap_or_default().remove("cluster");
    assert_eq!(answer.as_deref(), Some(""), "nobody works in the third");
    running.stop().await.or_fail();
    for namespace in [island, jungle, stranger] {
        namespace.remove().await;
    }
}
