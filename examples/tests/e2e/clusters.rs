//! Real kind clusters that code adds and removes. Not beside the provider, which `mcr` is tested with.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Controller, Manager, Request};
use mcr_core::{Access, ClusterName, ClusterSpec, ClusterState, Trust};
use mcr_provider_clusters::ClustersProvider;
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

fn spec(name: &str, e2e: &E2e, cluster: E2eCluster) -> ClusterSpec {
    let kubeconfig = std::fs::read(e2e.kubeconfig(cluster)).or_fail();
    ClusterSpec::new(
        ClusterName::new(name).or_fail(),
        Access::kubeconfig(kubeconfig, Trust::Trusted),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_join_and_leave_as_code_asks() {
    let Some(e2e) = E2e::from_env() else { return };
    let alpha = e2e.namespace(E2eCluster::Alpha, "clusters").await;
    let beta = e2e.namespace(E2eCluster::Beta, "clusters").await;
    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(alpha.selector()))
        .build(answer, Arc::new(()));
    let provider = ClustersProvider::builder()
        .cluster(spec("first", &e2e, E2eCluster::Alpha))
        .build();
    let clusters = provider.handle();
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));

    alpha.ask("there-from-the-beginning").await;
    alpha.answered("there-from-the-beginning", "first").await;
    beta.ask("there-before-its-cluster").await;
    clusters.add(spec("second", &e2e, E2eCluster::Beta));
    beta.answered("there-before-its-cluster", "second").await;

    let first = fleet.get("first").or_fail();
    // Who a cluster is, is asked when there is calm.
    let identity = eventually(DEADLINE, "it is known who it is", || first.identity()).await;
    clusters.remove(first.name());
    let gone = eventually(DEADLINE, "it is gone", || {
        (first.state() == ClusterState::Gone).then(|| fleet.get("first").is_err())
    });
    assert!(gone.await, "and nobody gets it any more");
    alpha.ask("while-it-was-away").await;
    beta.ask("another").await;
    beta.answered("another", "second").await;
    clusters.add(spec("first", &e2e, E2eCluster::Alpha));
    alpha.answered("while-it-was-away", "first").await;
    let again = fleet.get("first").or_fail();
    assert!(again.epoch() > first.epoch());
    let known = eventually(DEADLINE, "it is known who it is again", || again.identity());
    assert_eq!(known.await, identity);

    // Another cluster under the old name.
    clusters.add(spec("second", &e2e, E2eCluster::Alpha));
    clusters.remove(first.name());
    alpha.ask("under-another-name").await;
    alpha.answered("under-another-name", "second").await;
    running.stop().await.or_fail();
    alpha.remove().await;
    beta.remove().await;
}
