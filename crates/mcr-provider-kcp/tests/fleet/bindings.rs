//! Workspaces whose bindings change: how many there are, and whether they are ready.

use std::sync::{Arc, Mutex};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use mcr::{Action, Controller, Request};
use mcr_core::{Availability, ClusterState, layer};
use serde_json::json;

use crate::{garbage::of_sick, scripted::*, world::*};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_with_two_bindings_to_the_export_leaves_with_the_last_one() {
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    bind_as(&a, "again", "widgets");
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    unbind(&a);
    caught_up(&world, &running, "root").await;
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    assert!(in_a.state().is_ready());
    a.delete(BINDINGS, "again").or_fail();
    running.left(a.id()).await;
    running.stop().await;
}

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
async fn kcp_a_filter_follows_the_readiness_and_the_path_of_a_workspace() {
    let world = World::with_shards(1).await;
    let (a, other) = (world.consumer("team-a", "root"), world.consumer("other", "root"));
    let of_team = layer::filter(world.builder().build().or_fail(), |spec| {
        let path = spec.properties.get("kcp.io/path");
        path.is_some_and(|path| path.starts_with("root:team-") || path.starts_with("root:mark"))
            && spec.availability == Availability::Available
    });
    let running = Running::start(of_team);
    let first = running.ready(a.id()).await;
    set_ready(&world, &a, "False").await;
    running.left(a.id()).await;
    set_ready(&world, &a, "True").await;
    let second = running.ready(a.id()).await;
    assert!(!second.is_same(&first), "it has left and come back");
    caught_up(&world, &running, "root").await;
    assert!(running.fleet.get(other.id()).is_err());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_unbinding_and_binding_again_leaves_no_watch_and_no_endpoint_behind() {
    let world = World::with_shards(2).await;
    let running = Running::start(world.builder().build().or_fail());
    running.discovered().await;
    let shard = world.server.kcp().shard("shard-1").expect("there is one");
    let a = world
        .server
        .kcp()
        .create_workspace_on("root:a", "shard-1")
        .or_fail();
    for round in 0..5 {
        bind(&a);
        widget(&a, "w", "red");
        let in_a = running.ready(a.id()).await;
        Witness::of_widgets(&in_a).holds(&["default/w red"]).await;
        unbind(&a);
        running.left(a.id()).await;
        eventually(
            PATIENCE,
            format!("round {round}: the watches of the shard end"),
            || shard.watches() == 0,
        )
        .await;
        eventually(PATIENCE, "its endpoint goes", || {
            running.fleet.snapshot().scopes.is_empty()
        })
        .await;
    }
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

/// The binding was being deleted, is created again, and then vanishes: nobody has seen the new one go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_binding_that_was_created_again_may_vanish_without_a_deletion() {
    let kcp = Scripted::start().await;
    let mut deleting = bound(Some("a"), "widgets");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    deleting["status"]["conditions"] = json!([]);
    let list = |items: &[serde_json::Value]| bindings(items).watched(&expired());
    kcp.set("apibindings", list(&[deleting]));
    kcp.set_slice(&[&kcp.endpoint()]);
    let running = Running::start(of_sick(&kcp, "kcp").build().or_fail());
    let in_a = running.ready("kcp#a").await;
    let mut again = bound(Some("a"), "widgets");
    again["status"]["conditions"] = json!([]);
    kcp.set("apibindings", list(&[again]));
    reaches(&in_a, |state| matches!(state, ClusterState::Suspended { .. })).await;
    kcp.set("apibindings", list(&[]));
    let is_missing = |state: &ClusterState| {
        let reason = state.reason();
        reason.is_some_and(|why| why.contains("without having been deleted"))
    };
    let state = reaches(&in_a, is_missing).await;
    assert!(is_missing(&state), "{state:?}");
    kcp.set("apibindings", list(&[bound(Some("a"), "widgets")]));
    reaches(&in_a, ClusterState::is_ready).await;
    let status = &running.fleet.providers()[0];
    assert_eq!((status.restarts, &status.last_error), (0, &None));
    running.stop().await;
}

const HELD: &str = "example.io/clean-up";

type Steps = Arc<Mutex<Vec<String>>>;

/// Releases widgets that are being deleted, by a request to kcp.
async fn release(request: Request<DynamicObject>, steps: Arc<Steps>) -> Result<Action, kube::Error> {
    let Some(widget) = request.live() else {
        return Ok(Action::done());
    };
    if widget.metadata.deletion_timestamp.is_some() {
        let api: Api<DynamicObject> = request.cluster.namespaced_with("default", &widgets());
        // The clean-up reads the object from kcp, and then lets it go.
        api.get(&widget.name_any()).await?;
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(&widget.name_any(), &PatchParams::default(), &release)
            .await?;
        steps.lock().unwrap().push(format!("released {}", request.key));
    }
    Ok(Action::done())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_controller_finishes_its_clean_up_before_a_workspace_leaves() {
    for by_deletion in [false, true] {
        let world = World::with_shards(1).await;
        let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
        let held = |workspace: &mcr_kcp_double::KcpWorkspace| {
            workspace
                .apply(json!({
                    "apiVersion": "example.io/v1", "kind": "Widget",
                    "metadata": {"name": "w", "namespace": "default", "finalizers": [HELD]},
                }))
                .or_fail();
        };
        held(&a);
        held(&b);
        let running = Running::start(world.builder().build().or_fail());
        let in_a = running.ready(a.id()).await;
        running.ready(b.id()).await;
        // Nobody releases the widget yet: the workspace stays available.
        if by_deletion {
            world.server.kcp().delete_workspace("root:a").or_fail();
        } else {
            unbind(&a);
        }
        caught_up(&world, &running, "root").await;
        assert!(in_a.state().is_ready(), "{:?}", in_a.state());
        assert!(a.get(BINDINGS, "widgets").is_some());

        let steps = Arc::<Steps>::default();
        let controller = Controller::<DynamicObject>::with("release", &widgets())
            .build(release, steps.clone())
            .or_fail();
        let fleet = running.fleet.clone();
        let work = mcr_testkit::waiting::Background::start(|stop| controller.run(fleet, stop));
        running.left(a.id()).await;
        let released = format!("released cluster://{}/default/w", a.id());
        eventually(PATIENCE, "the reconcile has ended", || {
            *steps.lock().unwrap() == [released.clone()]
        })
        .await;
        assert!(b.get(WIDGETS, "default/w").is_some());
        work.stop().await.or_fail();
        running.stop().await;
    }
}
