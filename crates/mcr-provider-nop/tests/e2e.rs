//! Discovery switched off beside a real hub. `cargo xtask e2e` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, ClusterSelector, Controller, Manager, Request};
use mcr_core::ClusterName;
use mcr_provider_nop::NopProvider;
use mcr_provider_single::SingleProvider;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_members_the_hub_is_worked_on_all_the_same() {
    let Some(e2e) = E2e::from_env() else { return };
    let namespace = e2e.namespace(E2eCluster::Hub, "nop").await;
    let controller = Controller::<ConfigMap>::new("answer")
        .clusters(ClusterSelector::hub())
        .watch_request(|watch| watch.labels(namespace.selector()))
        .build(answer, Arc::new(()));
    let hub = SingleProvider::new(
        ClusterName::new("hub").or_fail(),
        e2e.client(E2eCluster::Hub).await,
    );
    let manager = Manager::builder()
        .provider(NopProvider::new())
        .provider(hub)
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    eventually(DEADLINE, "all is discovered", || fleet.is_discovered()).await;
    namespace.ask("first").await;
    namespace.answered("first", "hub").await;
    assert_eq!(fleet.clusters().len(), 1);
    running.stop().await.or_fail();
    namespace.remove().await;
}
