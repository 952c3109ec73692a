//! The simulated API server, through kube's client.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "app": name } }, "data": { "a": "1" } })
}

#[tokio::test]
async fn a_watch_of_forgotten_history_is_reported_410() {
    let cluster = SimCluster::builder().history(3).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    cluster.create(map("a")).unwrap();
    let old = cluster.resource_version().to_string();
    for number in 0..5 {
        cluster.create(map(&format!("b{number}"))).unwrap();
    }
    let mut watch = maps.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410 && status.reason == "Expired"));
    assert!(watch.next().await.is_none());

    // Writes of other kinds do not age it.
    let now = cluster.resource_version().to_string();
    for number in 0..9 {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("s{number}") } });
        cluster.create(secret).unwrap();
    }
    let mut watch = maps.watch(&WatchParams::default(), &now).await.unwrap().boxed();
    cluster.delete("configmaps", "default/a").unwrap();
    assert!(matches!(
        watch.next().await.unwrap().unwrap(),
        WatchEvent::Deleted(_)
    ));
    cluster.compact(cluster.resource_version());
    let error = maps
        .watch(&WatchParams::default(), &now)
        .await
        .unwrap()
        .boxed()
        .next()
        .await;
    assert!(matches!(error.unwrap().unwrap(), WatchEvent::Error(status) if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_in_time_and_at_the_end() {
    let interval = std::time::Duration::from_millis(600);
    let cluster = SimCluster::builder().bookmark_interval(interval).build();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let version = cluster.resource_version().to_string();
    let params = WatchParams::default().timeout(1);
    let events: Vec<_> = maps.watch(&params, &version).await.unwrap().collect().await;
    assert_eq!(events.len(), 2);
    assert!(
        events
            .into_iter()
            .all(|event| matches!(event.unwrap(), WatchEvent::Bookmark(_)))
    );
}

#[test]
fn copies_share_objects_and_not_identity() {
    let first = SimCluster::new();
    first.create(map("a")).unwrap();
    let copy = SimCluster::builder().template(&first).build();
    assert_eq!(copy.list("configmaps", "").len(), 1);
    assert_ne!(first.uid(), copy.uid());
    copy.delete("configmaps", "default/a").unwrap();
    assert!(first.get("configmaps", "default/a").is_some());
    let same = |seed| SimCluster::builder().seed(seed).build().uid();
    assert_eq!(same(1), same(1));
    assert_ne!(same(1), same(2));
}

#[tokio::test]
async fn a_restored_object_is_served_as_it_is_and_under_a_new_version() {
    let cluster = SimCluster::new();
    let before = cluster.resource_version();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "default", "uid": "u-1", "creationTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": "1",
            "managedFields": [{ "manager": "kubelet", "operation": "Update", "subresource": "status" }],
        },
        "spec": { "containers": [] },
        "status": { "phase": "Running" },
    });
    cluster.restore(pod.clone()).unwrap();
    let pods: Api<DynamicObject> = Api::all_with(cluster.client(), &ApiResource::erase::<Pod>(&()));
    let mut served =
        serde_json::to_value(pods.list(&ListParams::default()).await.unwrap().items.remove(0)).unwrap();
    let version = served["metadata"]["resourceVersion"].take();
    assert_eq!(version, (before + 1).to_string());
    served["metadata"]["resourceVersion"] = "1".into();
    // Lists leave these out.
    served["apiVersion"] = "v1".into();
    served["kind"] = "Pod".into();
    assert_eq!(served, pod);
    assert!(
        cluster
            .restore(json!({ "apiVersion": "v1", "kind": "Widget", "metadata": {} }))
            .is_err()
    );
}

#[test]
fn a_namespace_ends_at_once_where_that_was_asked_for() {
    let cluster = SimCluster::builder().finish_namespaces(true).build();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "apps" } });
    cluster.create(namespace.clone()).unwrap();
    let mut object = map("a");
    object["metadata"]["namespace"] = "apps".into();
    cluster.create(object).unwrap();
    cluster.delete("namespaces", "apps").unwrap();
    assert_eq!(cluster.get("configmaps", "apps/a"), None);
    assert_eq!(cluster.get("namespaces", "apps"), None);

    let plain = SimCluster::new();
    plain.create(namespace).unwrap();
    plain.delete("namespaces", "apps").unwrap();
    assert_eq!(
        plain.get("namespaces", "apps").unwrap()["status"]["phase"],
        "Terminating"
    );
}

#[tokio::test]
async fn a_refusal_of_what_is_not_simulated_reports_so() {
    let cluster = SimCluster::new();
    let service = cluster.service().with_token(&cluster.admin_token());
    let post = async |path: &str, media: &str| {
        let request = http::Request::post(path).header("content-type", media);
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"k8s\0{}"));
        let response = service.answer(request.body(body).unwrap()).await;
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        (
            status["code"].clone(),
            status["message"].as_str().unwrap().to_owned(),
        )
    };
    let protobuf = "application/vnd.kubernetes.protobuf";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let (code, message) = post(deployments, protobuf).await;
    assert_eq!(code, 415);
    assert_eq!(
        message,
        "this simulated API server takes no protobuf for Deployment: use `--dry-run=client -o yaml | kubectl apply -f -`"
    );
    let (code, message) = post(deployments, "text/plain").await;
    assert_eq!(code, 415);
    assert!(message.contains("unknown format"), "{message}");
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, message) = post(token, "application/json").await;
    assert_eq!(code, 405);
    assert!(
        message.contains("issues no tokens") && message.contains("--backend real"),
        "{message}"
    );
}
