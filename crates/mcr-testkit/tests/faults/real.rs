//! In front of real API servers, seen by `kube::Client`.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use mcr_testkit::{
    control_plane::{ControlPlane, policy_rule},
    faults::{Fault, FaultProxy, Match, Upstream},
};
use serde_json::json;

use crate::{silent, soon};

async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn code<T>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("no answer: {error:?}"),
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

#[tokio::test]
async fn a_real_api_server_behind_the_proxy() {
    let plane = ControlPlane::builder().name("berlin").start().await.unwrap();
    let account = plane
        .service_account("default", "watcher")
        .rules_in("default", [policy_rule([""], ["configmaps"], ["*"])])
        .create()
        .await
        .unwrap();
    let token = account.token().await.unwrap();

    // Tokens are passed on: RBAC is the API server's.
    let proxy = FaultProxy::builder(&plane).name("berlin").start().await.unwrap();
    let client = client_of(&proxy.kubeconfig_with_token(&token)).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::all(client);
    let params = ListParams::default();
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert_eq!(code(secrets.list(&params).await), 403);

    let mut watch = maps
        .watch(
            &WatchParams::default()
                .fields("metadata.name=b")
                .disable_bookmarks(),
            "0",
        )
        .await
        .unwrap()
        .boxed();
    proxy
        .set(Fault::Forbidden.on(Match::any().resource("configmaps").verb("list")))
        .await;
    assert_eq!(code(maps.list(&params).await), 403);
    assert_eq!(code(maps.get("a").await), 200);
    maps.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    let event = soon(watch.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("b")));

    proxy.set(Fault::GoneEvent).await;
    let event = soon(watch.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
    assert!(soon(watch.try_next()).await.unwrap().is_none());

    proxy.set(Fault::NoResourceVersion).await;
    let list = maps.list(&params).await.unwrap();
    assert_eq!(list.metadata.resource_version, None);

    proxy
        .set(Fault::Undecodable {
            name: Some("b".into()),
        })
        .await;
    assert!(matches!(
        maps.list(&params).await,
        Err(kube::Error::SerdeError(_))
    ));

    proxy.set(Fault::BlackHole).await;
    silent(maps.get("a")).await;
    proxy.clear().await;
    assert_eq!(code(soon(maps.get("a")).await), 200);

    // As the administrator, whoever the client is.
    let proxy = FaultProxy::start(Upstream::admin_of(&plane)).await.unwrap();
    let client = client_of(&proxy.kubeconfig_without_credentials()).await;
    assert_eq!(code(Api::<Secret>::all(client).list(&params).await), 200);

    // A dead upstream is a dead cluster.
    let client = client_of(&proxy.kubeconfig_with_token("whatever")).await;
    plane.stop().await.unwrap();
    assert!(Api::<Secret>::all(client).list(&params).await.is_err());
}
