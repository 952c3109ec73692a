//! Workspaces whose bindings change: how many there are, and whether they are ready.

use mcr_core::ClusterState;

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_is_not_ready_is_suspended_and_comes_back_without_a_list() {
    let world = World::with_shards(1).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
    widget(&a, "w", "red");
    let running = Running::start(world.builder().build().or_fail());
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;
    let asked = || ["apibindings", "widgets"].map(|resource| lists(&world, "root", resource));
    let before = asked();
    for (round, color) in ["green", "blue"].into_iter().enumerate() {
        set_ready(&world, &a, "False").await;
        let state = reaches(&in_a, |state| matches!(state, ClusterState::Suspended { .. })).await;
        let reason = state.reason().unwrap_or_default().to_owned();
        assert!(
            reason.contains("APIBinding widgets: condition Ready is False: Checked"),
            "{reason}"
        );
        assert!(
            in_b.state().is_ready(),
            "round {round}: the other workspace is not affected"
        );
        assert_eq!(seen.objects().len(), 1, "its objects stay");
        widget(&a, "w", color);
        set_ready(&world, &a, "True").await;
        reaches(&in_a, ClusterState::is_ready).await;
        seen.holds(&[&format!("default/w {color}")]).await;
    }
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    assert_eq!(asked(), before);
    assert!(
        seen.lines().iter().all(|line| !line.starts_with('-')),
        "{:?}",
        seen.lines()
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_is_created_again_is_another_cluster() {
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    widget(&a, "old", "red");
    let running = Running::start(world.builder().build().or_fail());
    let first = running.ready(a.id()).await;
    world.server.kcp().delete_workspace("root:a").or_fail();
    running.left(a.id()).await;
    let again = world.consumer("a", "root");
    widget(&again, "new", "red");
    let second = running.ready(again.id()).await;
    assert_ne!(first.identity(), second.identity());
    assert_eq!(second.property("kcp.io/path").as_deref(), Some("root:a"));
    Witness::of_widgets(&second).holds(&["default/new red"]).await;
    running.stop().await;
}
