//! Workspaces whose bindings change: how many there are, and whether they are ready.

use kube::api::{Patch, PatchParams};
use mcr::ClusterSelector;
use mcr_core::ClusterState;
use mcr_kcp_double::KcpWorkspace;
use serde_json::{Value, json};

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

/// Sets labels of the binding `widgets`, as the owner of the workspace does.
async fn label(world: &World, workspace: &KcpWorkspace, labels: Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    bindings_of(world, workspace)
        .patch("widgets", &PatchParams::default(), &patch)
        .await
        .or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_the_labels_that_the_operator_names_select_a_workspace_and_change_without_a_new_engagement() {
    let world = World::with_shards(1).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
    label(&world, &a, json!({"env": "prod", "trusted": "yes"})).await;
    let running = Running::start(world.builder().label_keys(["env"]).build().or_fail());
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    let seen = Witness::of_widgets(&in_a);
    widget(&a, "w", "red");
    seen.holds(&["default/w red"]).await;
    let before = lists(&world, "root", "widgets");
    let prod = ClusterSelector::label("env", "prod");
    assert_eq!(in_a.labels(), [("env".to_owned(), "prod".to_owned())].into());
    assert!(in_b.labels().is_empty());
    assert!(prod.matches(&in_a) && !prod.matches(&in_b));

    label(&world, &a, json!({"env": "dev"})).await;
    label(&world, &b, json!({"env": "prod"})).await;
    eventually(PATIENCE, "the labels follow", || {
        !prod.matches(&in_a) && prod.matches(&in_b)
    })
    .await;
    label(&world, &a, json!({"env": null})).await;
    eventually(PATIENCE, "the label goes", || in_a.labels().is_empty()).await;
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    assert_eq!(lists(&world, "root", "widgets"), before);
    assert!(in_a.state().is_ready());
    running.stop().await;

    let unnamed = Running::start(world.builder().build().or_fail());
    let cluster = unnamed.ready(b.id()).await;
    assert!(cluster.labels().is_empty(), "by default none");
    unnamed.stop().await;
}
