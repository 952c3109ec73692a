//! How workspaces come, change and go.

use futures::StreamExt;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use mcr_core::{Change, ClusterState, Discovery, Provider};
use mcr_provider_kcp::Readiness;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{garbage::of_sick, scripted::*, world::*};

fn patched(color: &str) -> Patch<serde_json::Value> {
    Patch::Merge(json!({"spec": {"color": color}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_workspaces_come_with_their_first_binding_and_leave_with_their_last() {
    let world = World::with_shards(2).await;
    let running = Running::start(world.builder().name_prefix("w#").build().or_fail());
    // No endpoint at all is normal.
    running.discovered().await;
    assert!(running.fleet.clusters().is_empty());

    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    widget(&a, "w", "red");
    widget(&b, "w", "blue");
    let (name_a, name_b) = (format!("w#{}", a.id()), format!("w#{}", b.id()));
    let (in_a, in_b) = (running.ready(&name_a).await, running.ready(&name_b).await);
    assert_eq!(in_a.property("kcp.io/path").as_deref(), Some("root:a"));
    assert_eq!(in_b.identity().as_deref(), Some(b.id()));
    let (seen_a, seen_b) = (Witness::of_widgets(&in_a), Witness::of_widgets(&in_b));
    seen_a.holds(&["default/w red"]).await;
    seen_b.holds(&["default/w blue"]).await;

    let api: Api<DynamicObject> = in_a.namespaced_with("default", &widgets());
    api.patch("w", &PatchParams::default(), &patched("green"))
        .await
        .or_fail();
    seen_a.holds(&["default/w green"]).await;
    assert_eq!(
        b.get("widgets.example.io", "default/w").unwrap()["spec"]["color"],
        "blue"
    );
    let apply =
        Patch::Apply(json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"}}));
    let error = api
        .patch("w", &PatchParams::apply("x").force(), &apply)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("merge patch with null"), "{error}");

    unbind(&a);
    running.left(&name_a).await;
    assert!(running.fleet.get(&name_b).is_ok_and(|now| now.is_same(&in_b)));
    unbind(&b);
    running.left(&name_b).await;
    // The last one has taken the last endpoint with it.
    bind(&a);
    widget(&a, "again", "red");
    let again = running.ready(&name_a).await;
    Witness::of_widgets(&again).holds(&["default/again red"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_is_suspended_until_its_binding_is_ready() {
    let kcp = Scripted::start().await;
    let set = |status: serde_json::Value| {
        let mut binding = bound(Some("a"), "widgets");
        binding["status"] = status;
        kcp.set("apibindings", bindings(&[binding]).watched(&expired()));
    };
    let ready = json!({"type": "Ready", "status": "True"});
    set(json!({}));
    kcp.set_slice(&[&kcp.endpoint()]);
    let provider = of_sick(&kcp, "kcp")
        .readiness(Readiness::PermissionClaimsApplied)
        .build()
        .or_fail();
    let running = Running::start(provider);
    let cluster = running.engaged("kcp#a").await;
    let state = cluster.state();
    let reason = state.reason().unwrap_or_default();
    assert!(matches!(state, ClusterState::Suspended { .. }), "{state:?}");
    assert!(reason.contains("APIBinding widgets is not bound yet"), "{reason}");
    let claims = |status: &str| json!({"type": "PermissionClaimsApplied", "status": status});
    set(json!({"phase": "Bound", "conditions": [ready, claims("False")]}));
    let is_labelling = |state: &ClusterState| {
        state
            .reason()
            .is_some_and(|why| why.contains("PermissionClaimsApplied is False"))
    };
    reaches(&cluster, is_labelling).await;
    set(json!({"phase": "Bound", "conditions": [ready, claims("True")]}));
    reaches(&cluster, ClusterState::is_ready).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_lost_shard_keeps_its_workspaces_and_their_objects() {
    let world = World::with_shards(2).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    widget(&a, "w", "red");
    widget(&b, "w", "blue");
    let running = Running::start(world.builder().build().or_fail());
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    let (seen_a, seen_b) = (Witness::of_widgets(&in_a), Witness::of_widgets(&in_b));
    seen_a.holds(&["default/w red"]).await;
    seen_b.holds(&["default/w blue"]).await;

    world.server.stop_shard("shard-1");
    reaches(&in_b, |state| matches!(state, ClusterState::Unreachable { .. })).await;
    assert_eq!(seen_b.objects(), ["default/w blue"]);
    widget(&a, "w", "green");
    seen_a.holds(&["default/w green"]).await;
    world.server.start_shard("shard-1").await.or_fail();
    reaches(&in_b, ClusterState::is_ready).await;
    widget(&b, "w", "white");
    seen_b.holds(&["default/w white"]).await;
    assert!(!seen_b.lines().contains(&"-default/w".to_owned()));
    assert!(running.fleet.get(b.id()).is_ok_and(|now| now.is_same(&in_b)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_deleted_workspace_leaves() {
    let world = World::with_shards(1).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
    let running = Running::start(world.builder().build().or_fail());
    running.ready(a.id()).await;
    let in_b = running.ready(b.id()).await;
    world.server.kcp().delete_workspace("root:a").or_fail();
    running.left(a.id()).await;
    assert!(in_b.state().is_ready());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_deleted_slice_makes_its_workspaces_unreachable_and_keeps_them() {
    const SLICES: &str = "apiexportendpointslices.apis.kcp.io";
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    widget(&a, "w", "red");
    let mut slice = world.provider.get(SLICES, "widgets").unwrap();
    for field in ["uid", "resourceVersion", "ownerReferences"] {
        slice["metadata"].as_object_mut().unwrap().remove(field);
    }
    slice["metadata"]["name"] = "own".into();
    world.provider.create(slice.clone()).or_fail();
    let running = Running::start(world.builder().slice("own").build().or_fail());
    let in_a = running.ready(a.id()).await;
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;

    world.provider.delete(SLICES, "own").or_fail();
    let state = reaches(&in_a, |state| matches!(state, ClusterState::Unreachable { .. })).await;
    assert!(state.reason().unwrap().contains("has no endpoint"), "{state:?}");
    assert_eq!(seen.objects(), ["default/w red"]);
    world.provider.create(slice).or_fail();
    reaches(&in_a, ClusterState::is_ready).await;
    // Its bindings are still watched.
    world.provider.delete(SLICES, "own").or_fail();
    reaches(&in_a, |state| matches!(state, ClusterState::Unreachable { .. })).await;
    unbind(&a);
    running.left(a.id()).await;
    running.stop().await;
}

/// What a discovery has not announced when it is synced counts as gone. So only the first one goes on without a shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_shard_that_is_down_holds_up_a_later_discovery_but_not_the_first() {
    let world = World::with_shards(2).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    let provider = world.builder().build().or_fail();
    world.server.stop_shard("shard-1");
    let stop = CancellationToken::new();
    let mut first = provider.discover(stop.child_token());
    assert_eq!(until(&mut first, "synced").await, [format!("+{}", a.id())]);
    drop(first);

    let mut second = provider.discover(stop.child_token());
    let next = tokio::time::timeout(PATIENCE, second.next()).await.or_fail();
    assert!(matches!(next, Some(Ok(Change::Upsert(spec))) if spec.name == a.id()));
    world.server.start_shard("shard-1").await.or_fail();
    assert_eq!(until(&mut second, "synced").await, [format!("+{}", b.id())]);
    stop.cancel();
    assert!(second.next().await.is_none());
}

/// The changes until this one, in words.
async fn until(discovery: &mut Discovery, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let change = tokio::time::timeout(PATIENCE, discovery.next()).await.or_fail();
        let words = match change.expect("the discovery goes on").unwrap() {
            Change::Upsert(spec) => format!("+{}", spec.name),
            Change::Remove(name) => format!("-{name}"),
            Change::Synced => "synced".to_owned(),
            other => panic!("{other:?}"),
        };
        if words == last {
            return seen;
        }
        seen.push(words);
    }
}
