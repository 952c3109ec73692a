//! Secrets of a real kind cluster that lead to others, through the Role of the README. `cargo xtask e2e` runs it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mcr::{Action, Cluster, Controller, Fleet, Manager, Request};
use mcr_core::ClusterState;
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    e2e::{self, DEADLINE, E2e, E2eCluster, E2eNamespace},
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};

use support::{LABEL, loopback_policy, role, secret};

async fn answer(request: Request<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    if let Some(namespace) = request.namespace().filter(|_| request.live().is_some()) {
        let maps = request.cluster.namespaced(namespace);
        e2e::answer(&maps, request.name(), request.cluster.name().as_str()).await?;
    }
    Ok(Action::await_change())
}

/// A client that has the rights of the README's Role in a namespace, and no others.
async fn as_documented(hub: &E2eNamespace) -> kube::Client {
    let mut role: Value = serde_saphyr::from_str(role()).or_fail();
    role["metadata"]["namespace"] = hub.name().into();
    let role: Role = serde_json::from_value(role).or_fail();
    let binding = json!({
        "metadata": {"name": "mcr-kubeconfigs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata.name},
        "subjects": [hub.subject("controller")],
    });
    let binding: RoleBinding = serde_json::from_value(binding).or_fail();
    let account = json!({"metadata": {"name": "controller"}});
    let account: ServiceAccount = serde_json::from_value(account).or_fail();
    let params = PostParams::default();
    hub.api().create(&params, &account).await.or_fail();
    hub.api().create(&params, &role).await.or_fail();
    hub.api().create(&params, &binding).await.or_fail();
    let kubeconfig = hub.kubeconfig("controller").await;
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).or_fail();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .or_fail();
    kube::Client::try_from(config).or_fail()
}

async fn put(hub: &E2eNamespace, name: &str, kubeconfig: &str) {
    let patch = Patch::Apply(secret(hub.name(), name, kubeconfig));
    let params = PatchParams::apply("e2e").force();
    hub.api::<Secret>().patch(name, &params, &patch).await.or_fail();
}

async fn ready(fleet: &Fleet, name: &str) -> Cluster {
    eventually(DEADLINE, format!("{name} is ready"), || {
        let cluster = fleet.get(name).ok()?;
        cluster.state().is_ready().then_some(cluster)
    })
    .await
}

async fn gone(fleet: &Fleet, cluster: &Cluster) {
    eventually(DEADLINE, format!("{} is gone", cluster.name()), || {
        cluster.state() == ClusterState::Gone
    })
    .await;
    assert!(fleet.get(cluster.name().as_str()).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_clusters_that_join_rotate_and_leave_with_no_more_than_the_documented_rights() {
    let Some(e2e) = E2e::from_env() else { return };
    let hub = e2e.namespace(E2eCluster::Hub, "kubeconfig").await;
    let alpha = e2e.namespace(E2eCluster::Alpha, "kubeconfig").await;
    let beta = e2e.namespace(E2eCluster::Beta, "kubeconfig").await;
    alpha.account("member", "edit").await;
    beta.account("member", "edit").await;

    let provider = KubeconfigProvider::builder()
        .client(as_documented(&hub).await)
        .namespace(hub.name())
        .build()
        .or_fail();
    let controller = Controller::<ConfigMap>::new("answer")
        .watch_request(|watch| watch.labels(alpha.selector()))
        .build(answer, Arc::new(()));
    let manager = Manager::builder()
        .provider(provider)
        .settings(|settings| settings.access_policy = loopback_policy())
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    put(&hub, "alpha", &alpha.kubeconfig("member").await).await;
    let running = Background::start(|stop| manager.run_until(stop));

    // One that was there, and one that joins while all runs.
    alpha.ask("first").await;
    alpha.answered("first", "alpha").await;
    beta.ask("first").await;
    put(&hub, "beta", &beta.kubeconfig("member").await).await;
    beta.answered("first", "beta").await;

    // A Secret that would have a program run is broken, which is told on it, and the others work on.
    let hostile = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "https://192.0.2.1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never",
        }}}],
    });
    put(&hub, "hostile", &hostile.to_string()).await;
    let reason = eventually(DEADLINE, "it is broken", || {
        let snapshot = fleet.snapshot();
        let status = snapshot
            .clusters
            .into_iter()
            .find(|status| status.name == "hostile")?;
        (status.state == "Broken").then(|| status.reason.unwrap_or_default())
    })
    .await;
    assert!(reason.contains("untrusted"), "{reason}");
    alpha.ask("beside-it").await;
    alpha.answered("beside-it", "alpha").await;

    // Another token: no LIST, and the same cluster.
    let before = ready(&fleet, "alpha").await;
    let (counts, lists) = (fleet.counts(), || fleet.counts().kinds["configmaps"].lists);
    let listed = lists();
    put(&hub, "alpha", &alpha.kubeconfig("member").await).await;
    eventually(DEADLINE, "the new token is in use", || {
        let renewed = fleet.counts().credentials.renewed;
        renewed > counts.credentials.renewed
    })
    .await;
    alpha.ask("with-another-token").await;
    alpha.answered("with-another-token", "alpha").await;
    assert_eq!(lists(), listed, "a rotation costs no LIST");
    assert!(ready(&fleet, "alpha").await.is_same(&before));

    // Without the label it leaves; with it, it is back. Deleted, it leaves as well.
    let (secrets, in_beta) = (hub.api::<Secret>(), ready(&fleet, "beta").await);
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL: value}}}));
        secrets
            .patch("alpha", &PatchParams::default(), &patch)
            .await
            .or_fail();
    };
    label(Value::Null).await;
    gone(&fleet, &before).await;
    alpha.ask("while-it-was-away").await;
    label("true".into()).await;
    alpha.answered("while-it-was-away", "alpha").await;
    let alpha_again = ready(&fleet, "alpha").await;
    secrets.delete("alpha", &DeleteParams::default()).await.or_fail();
    gone(&fleet, &alpha_again).await;
    assert!(
        ready(&fleet, "beta").await.is_same(&in_beta),
        "the other did not notice"
    );
    beta.ask("last").await;
    beta.answered("last", "beta").await;

    running.stop().await.or_fail();
    hub.remove().await;
    alpha.remove().await;
    beta.remove().await;
}
