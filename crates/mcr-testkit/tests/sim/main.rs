//! The simulated API server, through kube's client.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use mcr_testkit::sim::{SimCluster, SimRule, SimUser};
use serde_json::{Value, json};

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "app": name } }, "data": { "a": "1" } })
}

#[tokio::test]
async fn kube_creates_lists_watches_patches_and_deletes() {
    let cluster = SimCluster::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let object: ConfigMap = serde_json::from_value(map("a")).unwrap();
    maps.create(&PostParams::default(), &object).await.unwrap();
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.unwrap();
    let mut watch = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let patch = Patch::Merge(json!({ "data": { "b": "2" } }));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(matches!(
        watch.next().await.unwrap().unwrap(),
        WatchEvent::Modified(_)
    ));
    assert!(matches!(
        watch.next().await.unwrap().unwrap(),
        WatchEvent::Deleted(_)
    ));
    assert_eq!(cluster.watches(), 1);
    drop(watch);
    assert_eq!(cluster.watches(), 0);
    assert_eq!(cluster.audit().count(|event| event.is_list("configmaps")), 1);
    assert_eq!(
        cluster.audit().count(|event| event.is_watch_start("configmaps")),
        1
    );
}

#[tokio::test]
async fn users_are_told_apart_and_refused() {
    let cluster = SimCluster::new();
    let reader =
        SimUser::new("reader").rule(SimRule::new([""], ["configmaps"], ["list"]).in_namespace("default"));
    cluster.set_user("secret", reader);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_with_token("secret"));
    maps.list(&ListParams::default()).await.unwrap();
    let error = maps.get("a").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let nobody: Api<ConfigMap> = Api::default_namespaced(cluster.client_with_token("wrong"));
    let error = nobody.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 401));
}

#[tokio::test]
async fn serves_over_tls_with_tokens_and_certificates() {
    let cluster = SimCluster::builder().name("berlin").build();
    let server = cluster.serve().await.unwrap();
    let certificate = server.tls().client_certificate("cert-user").unwrap();
    cluster.set_certificate_user(&certificate, SimUser::new("cert-user").rule(SimRule::all()));
    for yaml in [
        server.kubeconfig(),
        server.kubeconfig_with_certificate(&certificate),
    ] {
        let config = kube::config::Kubeconfig::from_yaml(&yaml).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default())
            .await
            .unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.list(&ListParams::default()).await.unwrap();
    }
    let users: Vec<String> = cluster.audit().events().map(|event| event.user.clone()).collect();
    assert_eq!(users, ["admin", "cert-user"]);
}
