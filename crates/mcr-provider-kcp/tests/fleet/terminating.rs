//! Workspaces that wait for a terminator.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_core::{ClusterState, Provider};
use mcr_kcp_double::{Kcp, KcpDelays, KcpMove, KcpUser, KcpWorkspace};
use mcr_provider_kcp::{LifecycleError, TerminatingWorkspaces, Terminator};
use mcr_testkit::sim::SimRule;
use serde_json::json;

use crate::{events::events, initializing::finished, stages::*, world::*};

fn terminator(provider: &TerminatingWorkspaces) -> Terminator {
    provider.terminator().expect("the type has been read")
}

/// A ConfigMap that stays while kcp deletes the content of its workspace.
fn held_map() -> serde_json::Value {
    let mut map = config_map("content");
    map["metadata"]["finalizers"] = json!(["example.io/hold"]);
    map
}

/// Reads the ConfigMap `content` with the client of a cluster, and lets it go.
async fn release(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let map = maps.get("content").await.or_fail();
    assert!(map.metadata.deletion_timestamp.is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("content", &PatchParams::default(), &patch)
        .await
        .or_fail();
}

async fn gone(stages: &Stages, workspace: &KcpWorkspace) {
    eventually(PATIENCE, "the workspace is gone", || {
        stages.server.kcp().workspace(workspace.id()).is_none()
    })
    .await;
}

/// kcp tells a watch that is open already of the workspace with MODIFIED, not with ADDED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_deleted_workspace_is_a_cluster_until_its_terminator_is_removed() {
    let stages = Stages::with_shards(2, json!({"terminator": true})).await;
    let provider = stages.terminating().build().or_fail();
    let running = Running::start(provider.clone());
    running.discovered().await;
    let (a, b) = (stages.workspace("a", "root"), stages.workspace("b", "shard-1"));
    let held = stages.deleted("held", "shard-1");
    running.ready(held.id()).await;
    // A watch tells the events of a shard in order, so `b`, which is not deleted, would be here by now.
    assert!(running.fleet.get(b.id()).is_err());
    b.create(held_map()).or_fail();
    stages.delete(&a);
    stages.delete(&b);
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    assert_eq!(in_b.properties()["kcp.io/path"], "root:b");
    let seen = Arc::new(Witness::of(&in_b, clusters()));
    sees_its_cluster(&seen).await;
    release(in_b.client()).await;

    finished(terminator(&provider).remove(&in_b.client()).await);
    assert!(!in_b.deletions_are_certain());
    running.left(b.id()).await;
    gone(&stages, &b).await;
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    reaches(&in_a, ClusterState::is_ready).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_the_first_event_of_a_terminating_workspace_may_be_modified() {
    let stages = Stages::with_shards(1, json!({"terminator": true})).await;
    let provider = stages.terminating().build().or_fail();
    let mut received = Received::of(&provider);
    received.receives(&[synced()]).await;
    let a = stages.workspace("a", "root");
    stages.delete(&a);
    received.receives(&[comes(&a)]).await;
    stages.set(&a, "terminators", &[]).await;
    received.receives(&[leaves(&a)]).await;
    gone(&stages, &a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_terminator_that_fails_for_a_while_holds_the_workspace_until_it_lets_go() {
    let stages = Stages::with_shards(1, json!({"terminator": true})).await;
    let kcp = stages.server.kcp();
    let provider = stages.terminating().build().or_fail();
    let running = Running::start(provider.clone());
    let a = stages.workspace("a", "root");
    a.create(held_map()).or_fail();
    stages.delete(&a);
    let in_a = running.ready(a.id()).await;

    // Without the right.
    let rule = |verb: &str| SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], [verb]);
    kcp.set_user(
        "token",
        KcpUser::new("someone").rule(stages.home.id(), rule("initialize")),
    );
    let client = stages.client_at("terminatingworkspaces", "managed", a.id(), "token");
    let error = terminator(&provider)
        .remove(&client)
        .await
        .expect_err("the right is missing");
    assert!(
        matches!(
            error,
            LifecycleError::Forbidden {
                verb: "terminate",
                ..
            }
        ),
        "{error:?}"
    );
    // Without its shard.
    stages.server.stop_shard("root");
    let is_unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
    reaches(&in_a, is_unreachable).await;
    let error = terminator(&provider)
        .remove(&in_a.client())
        .await
        .expect_err("the shard is down");
    assert!(matches!(error, LifecycleError::Failed { .. }), "{error:?}");
    stages.server.start_shard("root").await.or_fail();
    reaches(&in_a, ClusterState::is_ready).await;
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    release(in_a.client()).await;

    finished(terminator(&provider).remove(&in_a.client()).await);
    running.left(a.id()).await;
    gone(&stages, &a).await;
    running.stop().await;
}

/// The refusal says what to do, and it is the shard of the workspace that refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_recorder_in_a_terminating_workspace_is_refused_by_the_shard_to_which_it_has_moved() {
    for order in [KcpMove::NewFirst, KcpMove::OldFirst] {
        let stages = Stages::with_shards(2, json!({"terminator": true})).await;
        let running = Running::start(stages.terminating().build().or_fail());
        let a = stages.workspace("a", "root");
        a.create(held_map()).or_fail();
        stages.delete(&a);
        let in_a = running.ready(a.id()).await;
        closes(&a).await;
        let recorder = in_a.recorder();
        let refused_by = |shard: &str| {
            let shard = stages.server.kcp().shard(shard).expect("it exists");
            let audit = shard.audit();
            audit.count(|event| {
                (&*event.verb, &*event.resource, event.code) == ("create", "events", 403)
                    && event.uri.contains("/services/terminatingworkspaces/")
            }) > 0
        };
        let refused = publish(&recorder, "CleanedUp").await;
        is_refused(&refused, 403);
        assert!(refused_by("root") && !refused_by("shard-1"));
        stages
            .server
            .kcp()
            .move_workspace(a.id(), "shard-1", order)
            .or_fail();
        publish_until(&recorder, "CleanedUp", |published| {
            assert!(published.is_err());
            refused_by("shard-1")
        })
        .await;
        assert!(
            running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)),
            "{order:?}"
        );
        release(stages.server.kcp().client(a.id())).await;
        eventually(PATIENCE, "the namespace is gone", || {
            a.get("namespaces", "default").is_none()
        })
        .await;
        is_refused(&publish(&recorder, "CleanedUp").await, 404);
        running.stop().await;
    }
}

/// Waits until kcp begins to delete the content of a workspace.
async fn closes(workspace: &KcpWorkspace) {
    eventually(PATIENCE, "the namespace takes no objects", || {
        let namespace = workspace.get("namespaces", "default")?;
        namespace["metadata"]["deletionTimestamp"]
            .is_string()
            .then_some(())
    })
    .await;
}

#[track_caller]
fn is_refused(answer: &Result<(), kube::Error>, code: u16) {
    assert!(
        matches!(answer, Err(kube::Error::Api(status)) if status.code == code),
        "{answer:?}"
    );
}

/// An event from before kcp deletes the content. When it is gone, the controller is told so, and the workspace goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_an_event_in_a_terminating_workspace_is_counted_as_long_as_it_exists() {
    let delays = KcpDelays {
        // It does not happen in this test.
        content: std::time::Duration::from_secs(3600),
        ..KcpDelays::default()
    };
    let stages = Stages::start(Kcp::builder().delays(delays)).await;
    stages.of_type("managed", json!({"terminator": true}));
    let provider = stages.terminating().build().or_fail();
    let running = Running::start(provider.clone());
    let a = stages.deleted("a", "root");
    let in_a = running.ready(a.id()).await;
    for _ in 0..3 {
        publish(&in_a.recorder(), "CleanedUp").await.or_fail();
    }
    assert_eq!(events(&a), [("CleanedUp".to_owned(), String::new(), 3)]);
    let event = a.list("events.events.k8s.io", "default").remove(0);
    let name = event["metadata"]["name"].as_str().expect("it has a name");
    a.delete("events.events.k8s.io", &format!("default/{name}"))
        .or_fail();
    let refused = publish(&in_a.recorder(), "CleanedUp").await;
    let gone = format!("\"{name}\" not found");
    assert!(
        refused.is_err_and(|error| error.to_string().contains(&gone)),
        "{name}"
    );
    finished(terminator(&provider).remove(&in_a.client()).await);
    running.left(a.id()).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_new_process_finds_the_workspaces_that_are_terminating() {
    let stages = Stages::with_shards(1, json!({"terminator": true})).await;
    stages.workspace("lives", "root");
    let a = stages.deleted("a", "root");
    for _ in 0..2 {
        let provider = stages.terminating().build().or_fail();
        let mut received = Received::of(&provider);
        received.receives(&[comes(&a), synced()]).await;
        assert_eq!(provider.name(), "kcp-terminating");
    }
    assert_eq!(asked(&stages, "root").0, 2);
}
