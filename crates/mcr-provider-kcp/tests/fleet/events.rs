//! Kubernetes events that a controller writes into workspaces.

use kube::{
    Resource,
    core::DynamicObject,
    runtime::events::{Event, EventType, Recorder},
};
use mcr_core::{Cluster, ClusterState};
use mcr_kcp_double::{KcpMove, KcpWorkspace};
use serde_json::{Value, json};

use crate::{
    claims::{claim, decide, demand},
    world::*,
};

const SHARDS: [&str; 2] = ["root", "shard-1"];

/// A workspace that grants events, with the widget `default/w`.
fn consumer(world: &World, name: &str, shard: &str) -> KcpWorkspace {
    let workspace = world.consumer(name, shard);
    decide(&workspace, json!([claim("", "events", "Accepted")]));
    widget(&workspace, "w", "red");
    workspace
}

/// A world with an export that claims events. Such a claim is about both groups of events.
async fn world() -> World {
    let world = World::with_shards(SHARDS.len()).await;
    demand(
        &world,
        json!([{"group": "", "resource": "events", "verbs": ["*"]}]),
    );
    world
}

/// Publishes through kcp as a reconciler does.
async fn publish(cluster: &Cluster, recorder: &Recorder, reason: &str) {
    let api = cluster.namespaced_with::<DynamicObject>("default", &widgets());
    let about = api.get("w").await.or_fail().object_ref(&widgets());
    let event = Event {
        type_: EventType::Normal,
        reason: reason.into(),
        note: Some(cluster.name().to_string()),
        action: "Paint".into(),
        secondary: None,
    };
    recorder.publish(&event, &about).await.or_fail();
}

/// The events in a workspace, as reason, note, and how often.
pub(crate) fn events(workspace: &KcpWorkspace) -> Vec<(String, String, u64)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let events = workspace.list("events.events.k8s.io", "default");
    let mut events: Vec<_> = events
        .iter()
        .map(|event| {
            let times = event["series"]["count"].as_u64().unwrap_or(1);
            (text(event, "reason"), text(event, "note"), times)
        })
        .collect();
    events.sort();
    events
}

fn painted(workspace: &KcpWorkspace, times: u64) -> Vec<(String, String, u64)> {
    vec![("Painted".to_owned(), workspace.id().to_owned(), times)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_an_event_is_one_event_in_its_workspace_however_often_it_is_published() {
    let world = world().await;
    let workspaces = [("a", "root"), ("b", "shard-1")].map(|(name, shard)| consumer(&world, name, shard));
    let running = Running::start(world.builder().build().or_fail());
    for (workspace, times) in workspaces.iter().zip([3, 1]) {
        let cluster = running.ready(workspace.id()).await;
        for _ in 0..times {
            // Each reconcile takes the recorder of its cluster.
            publish(&cluster, &cluster.recorder(), "Painted").await;
        }
    }
    for (workspace, times) in workspaces.iter().zip([3, 1]) {
        assert_eq!(events(workspace), painted(workspace, times));
    }
    running.stop().await;
}

/// A recorder that was taken before the move goes on, and counts the same event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_recorder_goes_on_after_its_workspace_has_moved_to_another_shard() {
    for order in [KcpMove::NewFirst, KcpMove::OldFirst] {
        let world = world().await;
        let (a, b) = (consumer(&world, "a", "root"), consumer(&world, "b", "shard-1"));
        let running = Running::start(world.builder().build().or_fail());
        let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
        let recorder = in_a.recorder();
        publish(&in_a, &recorder, "Painted").await;
        publish(&in_b, &in_b.recorder(), "Painted").await;

        let seen = Witness::of_widgets(&in_a);
        seen.holds(&["default/w red"]).await;
        let kcp = world.server.kcp();
        kcp.move_workspace(a.id(), "shard-1", order).or_fail();
        widget(&a, "w", "green");
        seen.holds(&["default/w green"]).await;
        reaches(&in_a, ClusterState::is_ready).await;
        publish(&in_a, &recorder, "Painted").await;
        publish(&in_a, &recorder, "Sold").await;
        assert_eq!(a.shard().as_deref(), Some("shard-1"));
        let mut wanted = painted(&a, 2);
        wanted.push(("Sold".to_owned(), a.id().to_owned(), 1));
        assert_eq!(events(&a), wanted, "{order:?}");
        assert_eq!(events(&b), painted(&b, 1));
        running.stop().await;
    }
}
