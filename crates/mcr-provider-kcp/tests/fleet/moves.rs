//! Workspaces that kcp moves to another shard.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ClusterState, WatchRequest};
use mcr_kcp_double::{Kcp, KcpDelays, KcpMove, KcpWorkspace};
use serde_json::json;

use crate::world::*;

fn config_map(workspace: &KcpWorkspace, name: &str) {
    let metadata = json!({"name": name, "namespace": "default"});
    workspace
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
        .or_fail();
}

/// Claimed objects are labelled on the new shard some time after they are there, so its first list lacks them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_moves_keeps_its_objects_and_its_engagement() {
    let delays = KcpDelays {
        copy: Duration::from_millis(300),
        ..KcpDelays::default()
    };
    for order in [KcpMove::NewFirst, KcpMove::OldFirst] {
        let world = World::start(Kcp::builder().shards(2).delays(delays)).await;
        let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
        widget(&a, "w", "red");
        config_map(&a, "claimed");
        // Also a busy machine notices the move within this time.
        let running = Running::start_with(world.builder().build().or_fail(), |settings| {
            settings.uncertain_deletion_delay = PATIENCE;
        });
        let in_a = running.ready(a.id()).await;
        running.ready(b.id()).await;
        let (seen, claimed) = (
            Witness::of_widgets(&in_a),
            Witness::of(&in_a, WatchRequest::of::<ConfigMap>()),
        );
        seen.holds(&["default/w red"]).await;
        let has =
            |witness: &Witness, name: &str| witness.objects().iter().any(|object| object.starts_with(name));
        eventually(PATIENCE, "the claimed object is seen", || {
            has(&claimed, "default/claimed")
        })
        .await;

        world
            .server
            .kcp()
            .move_workspace(a.id(), "shard-1", order)
            .or_fail();
        eventually(PATIENCE, "the widget is copied", || {
            a.get("widgets.example.io", "default/w")
        })
        .await;
        widget(&a, "w", "green");
        seen.holds(&["default/w green"]).await;
        reaches(&in_a, ClusterState::is_ready).await;
        assert!(
            running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)),
            "{order:?}"
        );
        // A claimed object that is new shows that the watch has arrived at the new shard.
        config_map(&a, "later");
        eventually(PATIENCE, "a later claimed object is seen", || {
            has(&claimed, "default/later")
        })
        .await;
        assert!(has(&claimed, "default/claimed"), "{order:?}");
        for witness in [&seen, &claimed] {
            let lines = witness.lines();
            assert!(
                !lines.iter().any(|line| line.starts_with('-')),
                "{order:?}: {lines:?}"
            );
        }
        running.stop().await;
    }
}
