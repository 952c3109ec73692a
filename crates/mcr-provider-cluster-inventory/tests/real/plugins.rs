//! The exec plugins of the Cluster Inventory API, with members that are real API servers.

use std::{path::Path, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_provider_cluster_inventory::{AccessProviderConfig, AccessProviders};
use mcr_testkit::{
    control_plane::{AuditMark, ControlPlane, ServiceAccountUser, policy_rule},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::{
    FLEET, PATIENCE, PROFILE, Running, condition, config_maps, create, folder, hub, lists, member, profiles,
    requests, status, support::access, yaml,
};

/// Sets a key of a Secret in the hub.
async fn secret(hub: &ControlPlane, name: &str, key: &str, value: &str) {
    let object = Secret {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        data: Some([(key.to_owned(), ByteString(value.as_bytes().to_vec()))].into()),
        ..Default::default()
    };
    Api::<Secret>::namespaced(hub.client(), FLEET)
        .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
        .await
        .or_fail();
}

/// A user of a member with a token of its own.
async fn account(member: &ControlPlane, name: &str) -> ServiceAccountUser {
    let all = policy_rule(["*"], ["*"], ["*"]);
    member
        .service_account("default", name)
        .cluster_rules([all])
        .create()
        .await
        .or_fail()
}

async fn profile(hub: &ControlPlane, name: &str, member: &ControlPlane, provider: &str, config: Value) {
    let object = json!({"metadata": {"name": name}, "spec": {"clusterManager": {"name": "test"}}});
    create(&hub.client(), PROFILE.0, PROFILE.1, Some(FLEET), object).await;
    let access = access(provider, &member.url(), &member.ca_pem(), config);
    let healthy = json!([condition("ControlPlaneHealthy", "True", "")]);
    let ready = json!({"conditions": healthy, "accessProviders": access});
    status(&profiles(&hub.client()), name, ready).await;
}

/// The kubeconfig of the plugins: it may get Secrets of the inventory, and nothing else.
async fn reader(hub: &ControlPlane) -> String {
    let rule = policy_rule([""], ["secrets"], ["get"]);
    let reader = hub
        .user("reader")
        .rules_in(FLEET, [rule])
        .create()
        .await
        .or_fail();
    let mut kubeconfig: Value = serde_saphyr::from_str(&reader.kubeconfig()).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = FLEET.into();
    kubeconfig.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_reached_with_the_upstream_plugins_and_a_revoked_token_is_replaced() {
    let Some(folder) = folder("plugins") else { return };
    let (hub, a, b, c) = tokio::join!(
        hub(yaml(&folder.join("clusterprofiles.yaml"))),
        member("a"),
        member("b"),
        member("c")
    );
    let scratch = tempfile::tempdir().unwrap();
    let kubeconfig = scratch.path().join("hub");
    std::fs::write(&kubeconfig, reader(&hub).await).unwrap();
    let plugins = ["kubeconfig-secretreader", "secretreader"].map(|name| folder.join(name));
    let configs = plugins.iter().map(|plugin| {
        let name = plugin.file_name().unwrap().to_str().unwrap();
        AccessProviderConfig::new(name, plugin.to_str().unwrap())
            .env("KUBECONFIG", kubeconfig.to_str().unwrap())
            .provide_cluster_info(true)
    });
    let providers = AccessProviders::new(configs).unwrap();
    let plugins: Vec<&Path> = plugins.iter().map(|plugin| &**plugin).collect();

    let first = account(&a, "first").await;
    secret(
        &hub,
        "a-kubeconfig",
        "value",
        &first.kubeconfig(first.token().await.or_fail()),
    )
    .await;
    secret(&hub, "b-kubeconfig", "value", &b.kubeconfig()).await;
    let token = account(&c, "first").await.token().await.or_fail();
    secret(&hub, "c", "token", &token).await;
    let named = |name: &str| json!({"name": name, "key": "value", "namespace": FLEET});
    profile(&hub, "a", &a, "kubeconfig-secretreader", named("a-kubeconfig")).await;
    profile(&hub, "b", &b, "kubeconfig-secretreader", named("b-kubeconfig")).await;
    profile(&hub, "c", &c, "secretreader", json!({"clusterName": "c"})).await;

    let running = Running::start(&hub, providers, &plugins).await;
    let mut watches = Vec::new();
    for name in ["a", "b", "c"] {
        watches.push(config_maps(&running.ready(name).await).await);
    }
    for (plane, user) in [(&a, ":first"), (&b, "admin"), (&c, ":first")] {
        assert_eq!(lists(plane, user, "configmaps", AuditMark::default()).await, 1);
    }
    let reads = async || requests(&hub, "reader", AuditMark::default()).await.len();
    assert_eq!(reads().await, 3, "each plugin ran once");

    // The token of a cluster is revoked, and its Secret has another one.
    let cluster = running.fleet.get("a").unwrap();
    let second = account(&a, "second").await;
    secret(
        &hub,
        "a-kubeconfig",
        "value",
        &second.kubeconfig(second.token().await.or_fail()),
    )
    .await;
    let before = a.audit().await.or_fail().mark();
    first.delete().await.or_fail();
    // The plugin does not report when a token expires, so only a request that is refused makes it run again. The API server refuses
    // the token once its own cache of tokens has expired.
    let nothing = cluster.namespaced::<ConfigMap>("default");
    let asked = async {
        while requests(&a, ":second", before).await.is_empty() {
            // The request is refused, or answered.
            let _ = nothing.get_opt("nothing").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked)
        .await
        .expect("the new token is used");
    assert_eq!(reads().await, 4, "one more run");
    for user in [":first", ":second"] {
        assert_eq!(lists(&a, user, "configmaps", before).await, 0);
    }
    assert!(running.fleet.get("a").unwrap().is_same(&cluster));
    let listed = lists(&hub, "consumer", "clusterprofiles", AuditMark::default()).await;
    assert_eq!(listed, 1, "one LIST in the hub");
    drop(watches);
    running.running.stop().await;
}
