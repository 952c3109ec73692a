//! Kinds that no workspace serves yet, kinds that come from other exports, and lists over all shards.

use std::time::Duration;

use kube::core::{ApiResource, GroupVersionKind};
use mcr_core::WatchRequest;
use mcr_kcp_double::KcpWorkspace;
use mcr_provider_kcp::{NotServed, wait_until_served};
use serde_json::{Value, json};

use crate::{
    claims::{decide, demand, is_blocked},
    world::*,
};

const SHEETS: &str = "sheets.other.io";

fn sheets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("other.io", "v1", "Sheet"), "sheets")
}

/// A workspace that exports sheets, and the identity of its export.
fn owner(world: &World, path: &str) -> (KcpWorkspace, Value) {
    let owner = world.server.kcp().create_workspace(path).or_fail();
    for object in [
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": "v1.sheets.other.io"},
            "spec": {
                "group": "other.io", "scope": "Namespaced",
                "names": {"kind": "Sheet", "listKind": "SheetList", "plural": "sheets", "singular": "sheet"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }],
            },
        }),
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "sheets"},
            "spec": {"resources": [{"name": "sheets", "group": "other.io", "schema": "v1.sheets.other.io"}]},
        }),
    ] {
        owner.create(object).or_fail();
    }
    let export = owner.get("apiexports.apis.kcp.io", "sheets").unwrap();
    let identity = export["status"]["identityHash"].clone();
    assert!(identity.is_string(), "{export}");
    (owner, identity)
}

fn claim(identity: &Value) -> Value {
    json!({"group": "other.io", "resource": "sheets", "verbs": ["*"], "identityHash": identity})
}

fn accepted(identity: &Value) -> Value {
    let mut claim = claim(identity);
    claim["selector"] = json!({"matchAll": true});
    claim["state"] = "Accepted".into();
    claim
}

fn bind_sheets(workspace: &KcpWorkspace, owner: &str) {
    workspace
        .create(json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "sheets"},
            "spec": {"reference": {"export": {"path": owner, "name": "sheets"}}},
        }))
        .or_fail();
}

fn sheet(workspace: &KcpWorkspace, name: &str) {
    workspace
        .create(json!({
            "apiVersion": "other.io/v1", "kind": "Sheet", "metadata": {"name": name, "namespace": "default"},
            "spec": {"color": "white"},
        }))
        .or_fail();
}

/// A list of such a kind has no resource version, and a watch of it would never send anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_kind_that_is_bound_later_is_delivered() {
    let world = World::with_shards(1).await;
    let (_, identity) = owner(&world, "root:owner");
    demand(&world, json!([claim(&identity)]));
    let a = world.consumer("a", "root");
    decide(&a, json!([accepted(&identity)]));
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    let request = WatchRequest::resource(&sheets());
    let seen = Witness::of(&in_a, request.clone());
    eventually(PATIENCE, "its list has failed", || {
        let status = in_a.kinds().into_iter().find(|status| status.kind == SHEETS)?;
        status.problem.filter(|_| !status.synced)
    })
    .await;
    let short = Duration::from_millis(300);
    let error = wait_until_served(&in_a, &request, short).await.unwrap_err();
    assert!(matches!(error, NotServed::TimedOut { .. }), "{error:?}");

    bind_sheets(&a, "root:owner");
    sheet(&a, "s");
    seen.holds(&["default/s white"]).await;
    wait_until_served(&in_a, &request, PATIENCE).await.or_fail();
    sheet(&a, "t");
    seen.holds(&["default/s white", "default/t white"]).await;
    running.stop().await;
}

/// kcp ends the watch of the old kind. The double does not, which is harder: nothing shows that it is the wrong kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_claimed_kind_with_another_identity_is_delivered_and_the_old_objects_leave() {
    for ended in [false, true] {
        let world = World::with_shards(1).await;
        let (_, old) = owner(&world, "root:old");
        let (_, new) = owner(&world, "root:new");
        demand(&world, json!([claim(&old)]));
        let a = world.consumer("a", "root");
        bind_sheets(&a, "root:old");
        decide(&a, json!([accepted(&old)]));
        sheet(&a, "old");
        let running = Running::start(world.builder().build().or_fail());
        let in_a = running.ready(a.id()).await;
        let seen = Witness::of(&in_a, WatchRequest::resource(&sheets()));
        seen.holds(&["default/old white"]).await;

        demand(&world, json!([claim(&new)]));
        let identity = new.as_str().unwrap();
        is_blocked(
            &in_a,
            SHEETS,
            &format!("with the identityHash {identity} of APIExport"),
        )
        .await;
        if ended {
            world.server.kcp().shard("root").unwrap().end_watches();
        }
        a.delete(BINDINGS, "sheets").or_fail();
        bind_sheets(&a, "root:new");
        sheet(&a, "new");
        decide(&a, json!([accepted(&new)]));
        seen.holds(&["default/new white"]).await;
        sheet(&a, "newer");
        seen.holds(&["default/new white", "default/newer white"]).await;
        assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_kind_that_is_neither_exported_nor_claimed_names_the_export() {
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    let request = WatchRequest::resource(&sheets());
    let _seen = Witness::of(&in_a, request.clone());
    let reason = "APIExport widgets neither exports nor claims sheets.other.io; add it to spec.resources or to \
                  spec.permissionClaims";
    is_blocked(&in_a, SHEETS, reason).await;
    let error = wait_until_served(&in_a, &request, Duration::from_millis(300))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("sheets.other.io") && text.contains("Check that the APIBinding is Bound"),
        "{text}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_waiting_for_a_kind_ends_with_its_workspace() {
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    let widgets = WatchRequest::resource(&widgets());
    wait_until_served(&in_a, &widgets, PATIENCE).await.or_fail();
    let sheets = WatchRequest::resource(&sheets());
    let waits = async { tokio::join!(wait_until_served(&in_a, &sheets, PATIENCE), async { unbind(&a) }).0 };
    let error = tokio::time::timeout(PATIENCE, waits).await.or_fail().unwrap_err();
    assert!(matches!(error, NotServed::Gone { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "cluster {} has left the fleet before it served sheets.other.io",
            a.id()
        )
    );
    let mut wrong = self::widgets();
    wrong.version = "../v1".to_owned();
    let wrong = wait_until_served(&in_a, &WatchRequest::resource(&wrong), PATIENCE).await;
    assert!(matches!(wrong, Err(NotServed::InvalidRequest(_))), "{wrong:?}");
    running.stop().await;
}
