//! Joining and leaving.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ClusterState, FleetEvent, StoreError};
use mcr_testkit::control_plane::ControlPlane;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_joins_is_read_and_leaves_without_a_trace() {
    let plane = ControlPlane::start().await.or_fail();
    create(&plane, "tarzan").await;
    create(&plane, "cheetah").await;
    let running = Running::start();
    let mut events = running.fleet.subscribe();
    let cluster = running.join("jungle", &plane.kubeconfig()).await;
    assert!(matches!(events.next().await, FleetEvent::Engaged(c) if c.name() == "jungle"));

    let unwatched = cluster.store::<ConfigMap>().map(|_| ()).unwrap_err();
    assert_eq!(
        unwatched.to_string(),
        "cluster jungle: configmaps is not watched, so there is no store of it. Declare it on a controller (for, owns, watches) or with Cluster::watch"
    );
    let (_watch, _log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    let store = cluster.store::<ConfigMap>().or_fail();
    let held = store.keys().or_fail();
    for name in ["tarzan", "cheetah"] {
        assert!(held.iter().any(|key| &*key.name == name), "{held:?}");
    }
    running.clusters.remove(&name("jungle"));
    let gone = tokio::time::timeout(SOON, cluster.wait_for(|state| *state == ClusterState::Gone)).await;
    assert_eq!(gone, Ok(ClusterState::Gone));
    assert!(cluster.token().is_cancelled());
    assert!(running.fleet.get("jungle").is_err());
    assert!(matches!(store.list(), Err(StoreError::Gone { .. })));
    assert!(running.fleet.snapshot().clusters.is_empty());
    let left = eventually(SOON, "told", || match events.try_next() {
        Some(FleetEvent::Disengaged { name, epoch }) => Some((name, epoch)),
        _ => None,
    })
    .await;
    assert_eq!(left, (name("jungle"), cluster.epoch()));
    running.stop().await;
}
