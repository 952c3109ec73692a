//! Permission claims that a workspace has not granted.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{Cluster, StoreError, WatchRequest};
use mcr_kcp_double::KcpWorkspace;
use serde_json::{Value, json};

use crate::world::*;

const NOT_ACCEPTED: &str = "permission claim configmaps of APIExport root:provider:widgets is not accepted in APIBinding \
                            widgets; set its state to Accepted";

/// Sets the claims of the workspace's binding.
pub(crate) fn decide(workspace: &KcpWorkspace, claims: Value) {
    let mut binding = workspace.get(BINDINGS, "widgets").unwrap();
    binding["spec"]["permissionClaims"] = claims;
    workspace.update(binding).or_fail();
}

pub(crate) fn claim(group: &str, resource: &str, state: &str) -> Value {
    json!({
        "group": group, "resource": resource, "verbs": ["*"], "selector": {"matchAll": true}, "state": state,
    })
}

/// Sets the claims of the export.
pub(crate) fn demand(world: &World, claims: Value) {
    let mut export = world.provider.get("apiexports.apis.kcp.io", "widgets").unwrap();
    export["spec"]["permissionClaims"] = claims;
    world.provider.update(export).or_fail();
}

fn config_map(workspace: &KcpWorkspace, name: &str) {
    workspace
        .create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        }))
        .or_fail();
}

/// Why a kind is blocked.
pub(crate) fn blocked(cluster: &Cluster, kind: &str) -> Option<String> {
    let status = cluster.kinds().into_iter().find(|status| status.kind == kind)?;
    status.problem.filter(|_| status.blocked)
}

pub(crate) async fn is_blocked(cluster: &Cluster, kind: &str, reason: &str) {
    eventually(
        PATIENCE,
        format!("{kind} of {} is blocked: {reason}", cluster.name()),
        || blocked(cluster, kind).filter(|problem| problem.contains(reason)),
    )
    .await;
}

async fn has(seen: &Witness, name: &str) {
    eventually(PATIENCE, format!("{name} is delivered"), || {
        seen.objects().iter().any(|object| object.starts_with(name))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_claim_that_is_not_granted_blocks_its_kind_with_the_claims_name() {
    let world = World::with_shards(1).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "root"));
    decide(&b, json!([claim("", "configmaps", "Rejected")]));
    for workspace in [&a, &b] {
        config_map(workspace, "claimed");
        widget(workspace, "w", "red");
    }
    let running = Running::start(world.builder().build().or_fail());
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    let maps = WatchRequest::of::<ConfigMap>();
    let (seen_a, seen_b) = (Witness::of(&in_a, maps.clone()), Witness::of(&in_b, maps));
    has(&seen_a, "default/claimed").await;
    is_blocked(&in_b, "configmaps", NOT_ACCEPTED).await;
    let store = in_b.store::<ConfigMap>().or_fail();
    let error = store.len().unwrap_err();
    assert!(matches!(error, StoreError::NotListed { .. }), "{error:?}");
    assert!(error.to_string().contains(NOT_ACCEPTED), "{error}");
    assert!(in_b.state().is_ready(), "{:?}", in_b.state());
    Witness::of_widgets(&in_b).holds(&["default/w red"]).await;

    // A claim that is missing in the binding is not accepted, either.
    decide(&b, json!([]));
    is_blocked(&in_b, "configmaps", "add it there with the state Accepted").await;
    decide(&b, json!([claim("", "configmaps", "Accepted")]));
    store.wait_synced(PATIENCE).await.or_fail();
    let names = seen_b.objects();
    assert!(
        names.iter().any(|name| name.starts_with("default/claimed")),
        "{names:?}"
    );
    eventually(PATIENCE, "it is not blocked", || {
        blocked(&in_b, "configmaps").is_none()
    })
    .await;

    decide(&b, json!([claim("", "configmaps", "Rejected")]));
    is_blocked(&in_b, "configmaps", NOT_ACCEPTED).await;
    eventually(PATIENCE, "its objects leave", || {
        seen_b.lines().contains(&"-default/claimed".to_owned())
    })
    .await;
    decide(&b, json!([claim("", "configmaps", "Accepted")]));
    has(&seen_b, "default/claimed").await;
    eventually(PATIENCE, "it is not blocked again", || {
        blocked(&in_b, "configmaps").is_none()
    })
    .await;

    assert!(running.fleet.get(b.id()).is_ok_and(|now| now.is_same(&in_b)));
    assert!(blocked(&in_a, "configmaps").is_none());
    assert!(
        seen_a.lines().iter().all(|line| line.starts_with('+')),
        "{:?}",
        seen_a.lines()
    );
    running.stop().await;
}
