//! Joining, leaving, and what handles, stores and indexes do.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use mcr_core::{ClusterState, FleetEvent, StoreError, WatchRequest};
use mcr_testkit::control_plane::ControlPlane;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_joins_is_read_and_leaves_without_a_trace() {
    let plane = ControlPlane::start().await.or_fail();
    create_with(&plane, "tarzan", &[("type", "human")]).await;
    create_with(&plane, "cheetah", &[("type", "animal")]).await;
    let running = Running::start();
    let label = |map: &ConfigMap| {
        map.metadata
            .labels
            .iter()
            .flatten()
            .filter(|(k, _)| *k == "type")
            .map(|(_, v)| v.clone())
            .collect()
    };
    running.fleet.index::<ConfigMap>("type", label);
    let mut events = running.fleet.subscribe();
    let cluster = running.join("jungle", &plane.kubeconfig()).await;
    assert!(matches!(events.next().await, FleetEvent::Engaged(c) if c.name() == "jungle"));

    let unwatched = cluster.store::<ConfigMap>().map(|_| ()).unwrap_err();
    assert_eq!(
        unwatched.to_string(),
        "cluster jungle: configmaps is not watched, so there is no store of it. Declare it on a controller (for, owns, watches) or with Cluster::watch"
    );
    let (watch, _log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    let store = cluster.store::<ConfigMap>().or_fail();
    let humans = store.by_index("type", "human").or_fail();
    assert_eq!(humans[0].metadata.name.as_deref(), Some("tarzan"));
    assert!(matches!(
        store.by_index("colour", "red"),
        Err(StoreError::NoIndex { .. })
    ));
    running
        .fleet
        .index::<ConfigMap>("name", |map| map.metadata.name.clone().into_iter().collect());
    assert_eq!(
        store.by_index("name", "cheetah").or_fail().len(),
        1,
        "an index that comes later finds what is there"
    );
    assert!(
        humans[0].metadata.managed_fields.is_none(),
        "managedFields are not held"
    );
    assert!(
        cluster.store::<PartialObjectMeta<ConfigMap>>().is_err(),
        "metadata-only is a watch of its own"
    );
    let _meta = cluster
        .watch(WatchRequest::of::<PartialObjectMeta<ConfigMap>>(), None)
        .or_fail();
    let meta = cluster.store::<PartialObjectMeta<ConfigMap>>().or_fail();
    meta.wait_synced(SOON).await.or_fail();
    assert!(
        meta.list()
            .or_fail()
            .iter()
            .any(|m| m.metadata.name.as_deref() == Some("tarzan"))
    );

    let (again, second) = watch_config_maps(&cluster);
    assert!(
        second.has("+tarzan"),
        "a second watch of the same shares the store and is told what is there"
    );
    assert_eq!(cluster.kinds().len(), 2);
    drop(again);
    assert!(cluster.store::<ConfigMap>().is_ok());
    drop(watch);
    assert!(
        matches!(cluster.store::<ConfigMap>(), Err(StoreError::NotWatched { .. })),
        "the last handle ends the watch"
    );

    running.clusters.remove(&name("jungle"));
    let gone = tokio::time::timeout(SOON, cluster.wait_for(|state| *state == ClusterState::Gone)).await;
    assert_eq!(gone, Ok(ClusterState::Gone));
    assert!(cluster.token().is_cancelled());
    assert!(running.fleet.get("jungle").is_err());
    assert!(matches!(meta.list(), Err(StoreError::Gone { .. })));
    assert!(running.fleet.snapshot().clusters.is_empty());
    let left = eventually(SOON, "told", || match events.try_next() {
        Some(FleetEvent::Disengaged { name, epoch }) => Some((name, epoch)),
        _ => None,
    })
    .await;
    assert_eq!(left, (name("jungle"), cluster.epoch()));
    running.stop().await;
}
