//! kcp restarts, and what happens while it is down.

use std::time::Duration;

use mcr_core::ClusterState;
use mcr_kcp_double::KcpWorkspace;
use mcr_testkit::waiting::hold_clock;
use serde_json::json;

use crate::world::*;

const SHARDS: [&str; 2] = ["root", "shard-1"];

/// Workspaces on both shards, each with a widget and a ConfigMap that the export claims.
fn consumers(world: &World, names: [&str; 4]) -> Vec<KcpWorkspace> {
    let consumer = |(number, name): (usize, &str)| {
        let workspace = world.consumer(name, SHARDS[number % 2]);
        widget(&workspace, "w", "red");
        workspace
            .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}}))
            .or_fail();
        workspace
    };
    names.into_iter().enumerate().map(consumer).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_what_happens_while_kcp_is_down_is_reported_once_after_it() {
    let world = World::with_shards(2).await;
    let workspaces = consumers(&world, ["leaves", "stays", "comes", "changes"]);
    let [leaves, stays, comes, changes] = &workspaces[..] else {
        unreachable!("there are four")
    };
    unbind(comes);
    let running = Running::start(world.builder().build().or_fail());
    let (in_stays, in_changes) = (running.ready(stays.id()).await, running.ready(changes.id()).await);
    running.ready(leaves.id()).await;
    let seen = [&in_stays, &in_changes].map(Witness::of_widgets);
    for witness in &seen {
        witness.holds(&["default/w red"]).await;
    }
    for shard in SHARDS {
        world.server.stop_shard(shard);
    }
    reaches(&in_stays, |state| {
        matches!(state, ClusterState::Unreachable { .. })
    })
    .await;
    unbind(leaves);
    bind(comes);
    changes.delete(WIDGETS, "default/w").or_fail();
    widget(changes, "new", "blue");
    // The other shard has lost its history as well, so its watches can't go on where they were.
    let shard = world.server.kcp().shard("shard-1").expect("there is one");
    shard.compact(shard.resource_version());
    assert_eq!(seen[1].objects(), ["default/w red"]);
    for shard in SHARDS {
        world.server.start_shard(shard).await.or_fail();
    }
    running.left(leaves.id()).await;
    running.ready(comes.id()).await;
    seen[1].holds(&["default/new blue"]).await;
    reaches(&in_stays, ClusterState::is_ready).await;
    widget(stays, "w", "green");
    seen[0].holds(&["default/w green"]).await;
    let gone = |witness: &Witness| {
        let lines = witness.lines().into_iter();
        lines.filter(|line| line.starts_with('-')).collect::<Vec<_>>()
    };
    assert_eq!(
        (gone(&seen[0]), gone(&seen[1])),
        (vec![], vec!["-default/w".to_owned()])
    );
    for (cluster, workspace) in [(&in_stays, stays), (&in_changes, changes)] {
        assert!(
            running
                .fleet
                .get(workspace.id())
                .is_ok_and(|now| now.is_same(cluster))
        );
    }
    running.stop().await;
}

/// Nobody has seen the binding go, so the workspace may be on its way to another shard.
#[tokio::test]
async fn kcp_a_workspace_whose_binding_was_gone_after_a_restart_leaves_after_a_grace_period() {
    let world = World::with_shards(1).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    running.ready(b.id()).await;
    world.server.stop_shard("root");
    unbind(&a);
    let shard = world.server.kcp().shard("root").expect("there is one");
    shard.compact(shard.resource_version());
    world.server.start_shard("root").await.or_fail();
    let is_missing = |state: &ClusterState| {
        let reason = state.reason();
        reason.is_some_and(|why| why.contains("has gone from endpoint"))
    };
    let state = reaches(&in_a, is_missing).await;
    assert!(is_missing(&state), "{state:?}");
    tokio::time::pause();
    let clock = hold_clock();
    tokio::time::advance(Duration::from_secs(29)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(running.fleet.get(a.id()).is_ok());
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(clock);
    tokio::time::resume();
    running.left(a.id()).await;
    assert!(running.fleet.get(b.id()).is_ok());
    running.stop().await;
}
