//! Two providers at once over real kind clusters, one of which leaves. `cargo xtask e2e` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use mcr::{Action, Controller, Manager, Request};
use mcr_core::{AccessPolicy, AddressPolicy, ClusterState, layer};
use mcr_provider_kind::KindProvider;
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_provider_multi::MultiProvider;
use mcr_testkit::{
    e2e::{self, DEADLINE, E2e, E2eCluster},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;

async fn answer(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    if let Some(namespace) = request.namespace().filter(|_| request.live().is_some()) {
        let maps = request.cluster.namespaced(namespace);
        e2e::answer(&maps, request.name(), request.cluster.name().as_str()).await?;
    }
    Ok(Action::await_change())
}

/// What kubeconfigs may do here, where all clusters are on this machine.
fn locally() -> AccessPolicy {
    AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_cluster_and_one_of_a_secret_are_worked_on_side_by_side() {
    let Some(e2e) = E2e::from_env() else { return };
    let hub = e2e.namespace(E2eCluster::Hub, "multi").await;
    let alpha = e2e.namespace(E2eCluster::Alpha, "multi").await;
    let beta = e2e.namespace(E2eCluster::Beta, "multi").await;
    beta.account("member", "edit").await;
    let member = json!({
        "metadata": {
            "name": "fleet-beta",
            "labels": {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
        },
        "stringData": {"kubeconfig": beta.kubeconfig("member").await},
    });
    let member: Secret = serde_json::from_value(member).or_fail();
    hub.api().create(&PostParams::default(), &member).await.or_fail();

    // The engine has the other clusters of the fleet as well, and perhaps the user's own.
    let kind = KindProvider::builder().prefix("fleet-").build().or_fail();
    let kind = layer::filter(kind, |spec| spec.name == "fleet-alpha");
    let secrets = KubeconfigProvider::builder()
        .client(e2e.client(E2eCluster::Hub).await)
        .namespace(hub.name())
        .build()
        .or_fail();
    let multi = MultiProvider::builder()
        .child(kind)
        .child(secrets)
        .build()
        .or_fail();
    let children = multi.handle();
    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(alpha.selector()))
        .build(answer, Arc::new(()));
    let manager = Manager::builder()
        .provider(multi)
        .settings(|settings| settings.access_policy = locally())
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let names = || {
        let clusters = fleet.clusters();
        let names = clusters.iter().map(|cluster| cluster.name().to_string());
        names.collect::<Vec<_>>()
    };
    let running = Background::start(|stop| manager.run_until(stop));

    alpha.ask("first").await;
    beta.ask("first").await;
    alpha.answered("first", "kind#fleet-alpha").await;
    beta.answered("first", "kubeconfig#fleet-beta").await;
    eventually(DEADLINE, "all is discovered", || fleet.is_discovered()).await;
    assert_eq!(names(), ["kind#fleet-alpha", "kubeconfig#fleet-beta"]);

    // A child leaves while all runs, and its clusters with it.
    let in_alpha = fleet.get("kind#fleet-alpha").or_fail();
    let in_beta = fleet.get("kubeconfig#fleet-beta").or_fail();
    assert!(children.remove("kind"));
    eventually(DEADLINE, "its cluster is gone", || {
        in_alpha.state() == ClusterState::Gone
    })
    .await;
    assert_eq!(names(), ["kubeconfig#fleet-beta"]);
    alpha.ask("while-it-was-away").await;
    beta.ask("second").await;
    beta.answered("second", "kubeconfig#fleet-beta").await;
    assert!(fleet.get("kubeconfig#fleet-beta").or_fail().is_same(&in_beta));

    // And back, under another name.
    let kind = KindProvider::builder().prefix("fleet-").build().or_fail();
    let kind = layer::filter(kind, |spec| spec.name == "fleet-alpha");
    children.add_as("again", kind).or_fail();
    alpha.answered("while-it-was-away", "again#fleet-alpha").await;
    running.stop().await.or_fail();
    for namespace in [hub, alpha, beta] {
        namespace.remove().await;
    }
}
