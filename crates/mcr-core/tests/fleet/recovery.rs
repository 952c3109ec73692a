//! Clusters that stop, come back, and get new kinds.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr_core::{ClusterState, WatchRequest};
use mcr_testkit::control_plane::{ControlPlane, Etcd};
use serde_json::json;

use crate::harness::*;

/// An API server that is stopped: Unreachable with a reason, then caught up, deletes included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_stopped_is_caught_up_with_deletes_included() {
    let etcd = Etcd::start().await.or_fail();
    let plane = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let other_door = ControlPlane::builder().replica_of(&plane).start().await.or_fail();
    create(&plane, "goes").await;
    create(&plane, "stays").await;
    let running = Running::start();
    let cluster = running.join("a", &plane.kubeconfig()).await;
    let (_watch, log) = watch_config_maps(&cluster);
    synced(&cluster).await;

    plane.stop().await.or_fail();
    let refused =
        "can't connect: connection refused: nothing listens at this address; the API server may be down";
    eventually(SOON, "the stop is noticed, with its reason", || {
        cluster.state().reason() == Some(refused)
    })
    .await;
    delete(&other_door, "goes").await;
    create(&other_door, "new").await;
    running.asked_again("a", 5).await;
    assert!(matches!(cluster.state(), ClusterState::Unreachable { .. }));
    assert!(
        !log.has("-goes") && !log.has("-stays"),
        "what can't be seen is not deleted: {:?}",
        log.lines()
    );

    plane.restart().await.or_fail();
    ready(&cluster).await;
    eventually(SOON, "caught up", || log.has("-goes") && log.has("+new")).await;
    assert_eq!(
        (log.count("-goes"), log.count("-stays"), log.count("+stays")),
        (1, 0, 1),
        "{:?}",
        log.lines()
    );
    running.stop().await;
}

/// A server that stands still but keeps its connections is found out by its silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_found_out_and_goes_on_when_it_speaks_again() {
    let plane = ControlPlane::start().await.or_fail();
    let running = Running::start_with(|settings| {
        settings.probe_after = Duration::from_secs(1);
        settings.probe_timeout = Duration::from_secs(2);
    });
    let cluster = running.join("a", &plane.kubeconfig()).await;
    let (_watch, log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    plane.pause().or_fail();
    let silent = eventually(SOON, "silence is noticed", || match cluster.state() {
        ClusterState::Unreachable { reason } => Some(reason),
        _ => None,
    })
    .await;
    assert!(silent.contains("no answer within"), "{silent}");
    plane.resume().or_fail();
    ready(&cluster).await;
    create(&plane, "after").await;
    eventually(SOON, "it goes on", || log.has("+after")).await;
    running.stop().await;
}

/// A CRD that is installed after the start is picked up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_installed_later_is_picked_up() {
    let plane = ControlPlane::start().await.or_fail();
    let running = Running::start();
    let cluster = running.join("a", &plane.kubeconfig()).await;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    let _watch = cluster.watch(WatchRequest::resource(&resource), None).or_fail();
    let (_maps, _log) = watch_config_maps(&cluster);
    let store = cluster.store_with::<DynamicObject>(&resource).or_fail();
    let problem = eventually(SOON, "its absence is told", || store.status().problem).await;
    assert_eq!(
        problem.error.to_string(),
        "the API server does not serve this kind (404). Install its CRD, or check group, version and plural"
    );
    synced(&cluster).await;

    plane.install_crd(widgets()).await.or_fail();
    store.wait_synced(SOON).await.or_fail();
    let api = kube::Api::<DynamicObject>::namespaced_with(plane.client(), "default", &resource);
    api.create(&Default::default(), &DynamicObject::new("one", &resource))
        .await
        .or_fail();
    eventually(SOON, "its objects are seen", || store.len().or_fail() == 1).await;
    assert_eq!(store.list().or_fail()[0].types.as_ref().unwrap().kind, "Widget");
    running.stop().await;
}

fn widgets() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
        }
    })
}
