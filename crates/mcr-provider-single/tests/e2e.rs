//! A real kind cluster as the hub, beside others. `cargo xtask e2e` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, ClusterSelector, Controller, Manager, Request};
use mcr_core::{Access, ClusterName, Trust};
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
async fn the_hub_is_worked_on_by_whoever_asks_for_it_and_the_others_by_all() {
    let Some(e2e) = E2e::from_env() else { return };
    let hub = e2e.namespace(E2eCluster::Hub, "single").await;
    let hub_too = e2e.namespace(E2eCluster::Hub, "single-members").await;
    let member = e2e.namespace(E2eCluster::Alpha, "single-members").await;
    let kubeconfig = std::fs::read(e2e.kubeconfig(E2eCluster::Hub)).or_fail();
    let hub_provider = SingleProvider::builder(
        ClusterName::new("hub").or_fail(),
        Access::kubeconfig(kubeconfig, Trust::Trusted),
    )
    .provider_name("hub")
    .build();
    let client = e2e.client(E2eCluster::Alpha).await;
    let members = SingleProvider::new(ClusterName::new("member").or_fail(), client);
    let on_hub = Controller::<ConfigMap>::new("on-the-hub")
        .clusters(ClusterSelector::hub())
        .watch_request(|watch| watch.labels(hub.selector()))
        .build(answer, Arc::new(()));
    let on_members = Controller::<ConfigMap>::new("on-members")
        .watch_request(|watch| watch.labels(member.selector()))
        .build(answer, Arc::new(()));
    let manager = Manager::builder()
        .provider(hub_provider)
        .provider(members)
        .controller(on_hub)
        .controller(on_members)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));

    hub_too.ask("not-asked-for").await;
    hub.ask("for-the-hub").await;
    member.ask("for-the-member").await;
    hub.answered("for-the-hub", "hub").await;
    member.answered("for-the-member", "member").await;
    let maps = hub_too.api::<ConfigMap>();
    let unanswered = maps.get("not-asked-for").await.or_fail();
    let answer = unanswered.data.unwrap_or_default().remove("cluster");
    assert_eq!(answer.as_deref(), Some(""), "controllers leave the hub out");
    // Whatever the access, each is known by who it is.
    let mut identities = Vec::new();
    for name in ["hub", "member"] {
        let cluster = fleet.get(name).or_fail();
        identities.push(eventually(DEADLINE, "it is known who it is", || cluster.identity()).await);
    }
    assert_ne!(identities[0], identities[1]);
    running.stop().await.or_fail();
    hub.remove().await;
    hub_too.remove().await;
    member.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_for_many_clusters_runs_on_one() {
    let Some(e2e) = E2e::from_env() else { return };
    let namespace = e2e.namespace(E2eCluster::Hub, "only").await;
    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(namespace.selector()))
        .build(answer, Arc::new(()));
    let only = SingleProvider::new(
        ClusterName::new("only").or_fail(),
        e2e.client(E2eCluster::Hub).await,
    );
    let manager = Manager::builder()
        .provider(only)
        .controller(controller)
        .build()
        .or_fail();
    let running = Background::start(|stop| manager.run_until(stop));
    namespace.ask("first").await;
    namespace.answered("first", "only").await;
    running.stop().await.or_fail();
    namespace.remove().await;
}
