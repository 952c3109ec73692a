//! Clusters that stop and come back.

use mcr_core::ClusterState;
use mcr_testkit::control_plane::{ControlPlane, Etcd};

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
