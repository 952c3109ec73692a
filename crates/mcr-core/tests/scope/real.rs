//! Namespaces of a real API server as clusters.

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, api::PostParams};
use mcr_core::{Access, Scope, Trust, WatchRequest};
use mcr_testkit::control_plane::ControlPlane;

use crate::harness::*;

async fn plane(namespaces: &[&str]) -> ControlPlane {
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    for namespace in namespaces {
        let namespace: Namespace =
            serde_json::from_value(serde_json::json!({"metadata": {"name": namespace}})).or_fail();
        let api = Api::all(plane.client());
        api.create(&PostParams::default(), &namespace).await.or_fail();
    }
    plane
}

fn scope(plane: &ControlPlane) -> Scope {
    let scope = Scope::new(NAMESPACES);
    scope.set_endpoint("main", Access::kubeconfig(plane.kubeconfig(), Trust::Trusted));
    scope
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cluster_sees_its_own_objects_and_all_share_one_watch() {
    let plane = plane(&["zoo", "jungle"]).await;
    let client = plane.client();
    create(&client, "zoo", "elephant").await;
    create(&client, "jungle", "monkey").await;
    create(&client, "default", "nobody").await;

    let running = Running::start();
    let scope = scope(&plane);
    let zoo = running.join(&scope, "main", "zoo").await;
    let jungle = running.join(&scope, "main", "jungle").await;
    let (_zoo_watch, zoo_log) = watch_config_maps(&zoo);
    let (_jungle_watch, jungle_log) = watch_config_maps(&jungle);
    ready(&zoo).await;
    ready(&jungle).await;
    synced(&zoo).await;
    synced(&jungle).await;
    assert_eq!(held(&zoo), ["elephant"]);
    assert_eq!(held(&jungle), ["monkey"]);

    create(&client, "zoo", "lion").await;
    delete(&client, "jungle", "monkey").await;
    eventually(SOON, "the changes are seen", || {
        zoo_log.has("+lion") && jungle_log.has("-monkey")
    })
    .await;
    // One that joins later finds what is there, without a list.
    let nobody = running.join(&scope, "main", "default").await;
    let (_nobody_watch, nobody_log) = watch_config_maps(&nobody);
    synced(&nobody).await;
    assert_eq!(held(&nobody), ["nobody"]);
    assert_eq!(nobody_log.lines(), ["+nobody"]);

    assert_eq!(zoo_log.sorted(), ["+elephant", "+lion"]);
    assert_eq!(jungle_log.sorted(), ["+monkey", "-monkey"]);
    let audit = plane.audit().await.or_fail();
    let own = |e: &mcr_testkit::control_plane::AuditEvent| e.uri.starts_with("/api/v1/configmaps?");
    assert_eq!(audit.count(|e| own(e) && e.is_list("configmaps")), 1);
    assert_eq!(audit.count(|e| own(e) && e.is_watch_start("configmaps")), 1);

    let scopes = running.fleet.snapshot().scopes;
    assert_eq!(scopes.len(), 1);
    assert_eq!(scopes[0].state, "Ready");
    assert_eq!(scopes[0].clusters, 3);
    assert_eq!(scopes[0].watches[0].clusters, 3);
    // A kind that the scope does not have is explained.
    let _nodes = zoo.watch(WatchRequest::of::<Node>(), None).or_fail();
    let blocked = zoo.kinds().into_iter().find(|kind| kind.kind == "nodes").unwrap();
    assert!(blocked.blocked && blocked.problem.unwrap().contains("a namespace has no nodes"));
    running.stop().await;
}
