//! Namespaces of a real API server as clusters.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::{Api, api::PostParams};
use mcr_core::{Access, ClusterState, Scope, StoreError, Trust, WatchRequest};
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
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_follow_their_endpoint_and_leave_by_themselves() {
    let plane = plane(&["zoo", "jungle"]).await;
    let client = plane.client();
    create(&client, "zoo", "elephant").await;
    let running = Running::start();
    let scope = scope(&plane);
    let zoo = running.join(&scope, "main", "zoo").await;
    let jungle = running.join(&scope, "main", "jungle").await;
    let (zoo_watch, zoo_log) = watch_config_maps(&zoo);
    let (_jungle_watch, _) = watch_config_maps(&jungle);
    synced(&zoo).await;
    let api: Api<ConfigMap> = zoo.namespaced("zoo");
    assert!(api.get("elephant").await.is_ok());

    plane.stop().await.or_fail();
    let unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
    for cluster in [&zoo, &jungle] {
        let state = tokio::time::timeout(SOON, cluster.wait_for(unreachable)).await;
        assert!(state.or_fail().reason().is_some(), "{}", cluster.state());
    }
    let error = api.get("elephant").await.unwrap_err().to_string();
    assert!(error.contains("zoo"), "{error}");
    assert_eq!(held(&zoo), ["elephant"], "what was known stays readable");
    plane.restart().await.or_fail();
    ready(&zoo).await;
    ready(&jungle).await;
    create(&client, "zoo", "lion").await;
    eventually(SOON, "changes are seen again", || zoo_log.has("+lion")).await;

    // A kind that the scope does not have is explained, and nothing else suffers.
    let _nodes = zoo.watch(WatchRequest::of::<Node>(), None).or_fail();
    let blocked = zoo.kinds().into_iter().find(|kind| kind.kind == "nodes").unwrap();
    assert!(blocked.blocked && blocked.problem.unwrap().contains("a namespace has no nodes"));

    // Leaving is not deleting, and what is left of the one says nothing of the other.
    let store = zoo.store::<ConfigMap>().or_fail();
    running.clusters.remove(zoo.name());
    gone(&zoo).await;
    assert!(!zoo_log.has("-elephant"));
    assert!(matches!(store.list(), Err(StoreError::Gone { .. })));
    let error = api.get("elephant").await.unwrap_err();
    let transport =
        std::error::Error::source(&error).and_then(|e| e.downcast_ref::<mcr_core::TransportError>());
    assert!(
        transport.is_some_and(mcr_core::TransportError::is_gone),
        "{error}"
    );
    drop(zoo_watch);
    assert!(jungle.state().is_ready());

    // Back again, it is another engagement with the objects that are there.
    let again = running.join(&scope, "main", "zoo").await;
    assert!(again.epoch() > zoo.epoch());
    let (_again_watch, again_log) = watch_config_maps(&again);
    synced(&again).await;
    assert_eq!(again_log.sorted(), ["+elephant", "+lion"]);

    // Of another identity, it is another cluster.
    running
        .clusters
        .add(spec(&scope, "main", "zoo").identity("another"));
    next(&running, &again).await;
    assert!(matches!(again.store::<ConfigMap>(), Err(StoreError::Gone { .. })));
    running.stop().await;
    assert_eq!(jungle.state(), ClusterState::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_and_reads_over_the_fleet_find_objects_of_every_cluster() {
    let plane = plane(&["zoo", "jungle", "island"]).await;
    let running = Running::start();
    let scope = scope(&plane);
    for (namespace, name, kind) in [
        ("zoo", "keeper", "human"),
        ("zoo", "lion", "animal"),
        ("jungle", "tarzan", "human"),
    ] {
        let api = Api::<ConfigMap>::namespaced(plane.client(), namespace);
        api.create(&PostParams::default(), &config_map(name, &[("type", kind)]))
            .await
            .or_fail();
    }
    running.fleet.index::<ConfigMap>("type", |map| {
        map.metadata
            .labels
            .iter()
            .flatten()
            .filter(|(key, _)| *key == "type")
            .map(|(_, value)| value.clone())
            .collect()
    });
    let mut handles = Vec::new();
    for place in ["zoo", "jungle", "island"] {
        let cluster = running.join(&scope, "main", place).await;
        handles.push(watch_config_maps(&cluster).0);
        synced(&cluster).await;
    }
    let humans = |fleet: &mcr_core::Fleet| {
        let found = fleet.by_index::<ConfigMap>("type", "human");
        found
            .objects
            .iter()
            .map(|(cluster, map)| format!("{}/{}", cluster.name(), map.metadata.name.as_deref().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(humans(&running.fleet), ["jungle/tarzan", "zoo/keeper"]);
    let api = Api::<ConfigMap>::namespaced(plane.client(), "island");
    api.create(
        &PostParams::default(),
        &config_map("crusoe", &[("type", "human")]),
    )
    .await
    .or_fail();
    eventually(SOON, "crusoe is found", || {
        humans(&running.fleet) == ["island/crusoe", "jungle/tarzan", "zoo/keeper"]
    })
    .await;
    // An index that comes late finds them as well, in places and in those to come.
    running
        .fleet
        .index::<ConfigMap>("name", |map| map.metadata.name.clone().into_iter().collect());
    assert_eq!(
        running.fleet.by_index::<ConfigMap>("name", "lion").objects.len(),
        1
    );
    assert_eq!(
        running
            .fleet
            .list::<ConfigMap>()
            .objects
            .iter()
            .filter(|(_, map)| map.metadata.name.as_deref() == Some("crusoe"))
            .count(),
        1
    );
    let island = running.fleet.get("island").or_fail();
    let own = island
        .store::<ConfigMap>()
        .or_fail()
        .by_index("type", "human")
        .or_fail();
    assert_eq!(own.len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_credentials_of_an_endpoint_cost_no_list() {
    let plane = plane(&["zoo", "jungle"]).await;
    let robot = robot(&plane).await;
    let access = async || Access::kubeconfig(with_new_token(&robot).await, Trust::Trusted);
    let running = Running::start_with(|settings| {
        Arc::make_mut(&mut settings.transport).rotation_spread = Duration::from_millis(300);
    });
    let scope = Scope::new(NAMESPACES);
    scope.set_endpoint("main", access().await);
    let zoo = running.join(&scope, "main", "zoo").await;
    let (_watch, log) = watch_config_maps(&zoo);
    synced(&zoo).await;
    let mark = plane.audit().await.or_fail().mark();
    scope.set_endpoint("main", access().await);
    the_robot_watches(&plane, mark).await;
    create(&plane.client(), "zoo", "lion").await;
    eventually(SOON, "changes are seen after the swap", || log.has("+lion")).await;
    let audit = plane.audit().await.or_fail().since(mark);
    assert_eq!(lists_of_the_robot(&audit), 0);
    running.stop().await;
}
