//! What the provider does on any kcp: on the double, and on a real kcp when `MCR_KCP_KUBECONFIG` names a kubeconfig of its
//! admin.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use mcr_core::{Access, Cluster, Trust, WatchRequest};
use mcr_provider_kcp::{KcpProvider, KcpProviderBuilder, Readiness};
use serde_json::{Value, json};

use crate::{
    kcps::{
        self, BINDING, IN_DEFAULT, SLICE, Workspace, World, bind, claim, config_map, create, on_shard,
        served_worlds, until,
    },
    world::{OrFail, PATIENCE, Running, Witness, eventually, reaches, widgets},
};

fn builder(kcp: &World, provider: &Workspace, token: Option<&str>) -> KcpProviderBuilder {
    let kubeconfig = kcp.kubeconfig(&provider.path, token);
    KcpProvider::builder()
        .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
        .slice("widgets")
}

async fn widget(workspace: &Workspace, name: &str, color: &str) {
    let mut object = kcps::widget(name);
    object["spec"] = json!({ "color": color });
    create(&workspace.client, IN_DEFAULT, &object).await;
}

async fn unbind(workspace: &Workspace) {
    let answer = kcps::delete(&workspace.client, BINDING).await;
    assert_eq!(answer.code / 100, 2, "{answer:?}");
}

fn api(cluster: &Cluster) -> Api<DynamicObject> {
    cluster.namespaced_with("default", &widgets())
}

async fn patch(cluster: &Cluster, name: &str, change: Value) {
    let patch = Patch::Merge(change);
    api(cluster)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .or_fail();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_workspaces_join_from_zero_endpoints_and_again_after_the_last_unbind() {
    for kcp in served_worlds(1).await {
        let provider = kcp.provider("zero", json!([])).await;
        let running = Running::start(builder(&kcp, &provider, None).build().or_fail());
        running.discovered().await;
        assert!(running.fleet.clusters().is_empty());
        let (a, _) = kcp.consumer("zero-a", &provider, json!([])).await;
        let in_a = running.ready(&a.id).await;
        assert_eq!(in_a.property("kcp.io/path").as_deref(), Some(&*a.path));
        let seen = Witness::of_widgets(&in_a);
        widget(&a, "w", "red").await;
        seen.holds(&["default/w red"]).await;

        unbind(&a).await;
        running.left(&a.id).await;
        until(&provider.client, SLICE, |slice| {
            slice.json["status"]["endpoints"].is_null()
        })
        .await;
        bind(&a, &provider, json!([])).await;
        let again = running.ready(&a.id).await;
        let seen = Witness::of_widgets(&again);
        widget(&a, "again", "blue").await;
        seen.holds(&["default/again blue"]).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_objects_of_the_same_name_stay_in_their_workspaces() {
    for kcp in served_worlds(1).await {
        let provider = kcp.provider("same", json!([])).await;
        let (a, _) = kcp.consumer("same-a", &provider, json!([])).await;
        let (b, _) = kcp.consumer("same-b", &provider, json!([])).await;
        widget(&a, "w", "red").await;
        widget(&b, "w", "blue").await;
        let running = Running::start(builder(&kcp, &provider, None).build().or_fail());
        let (in_a, in_b) = (running.ready(&a.id).await, running.ready(&b.id).await);
        let (seen_a, seen_b) = (Witness::of_widgets(&in_a), Witness::of_widgets(&in_b));
        seen_a.holds(&["default/w red"]).await;
        seen_b.holds(&["default/w blue"]).await;
        let status = Patch::Merge(json!({ "status": { "seen": true } }));
        api(&in_a)
            .patch_status("w", &PatchParams::default(), &status)
            .await
            .or_fail();
        let at = format!("{IN_DEFAULT}/w");
        assert_eq!(kcps::get(&a.client, &at).await.json["status"]["seen"], true);
        assert!(kcps::get(&b.client, &at).await.json["status"].is_null());
        patch(&in_b, "w", json!({ "spec": { "color": "green" } })).await;
        seen_b.holds(&["default/w green"]).await;
        seen_a.holds(&["default/w red"]).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_finalizer_is_released_before_its_workspace_leaves() {
    for kcp in served_worlds(1).await {
        let provider = kcp.provider("held", json!([])).await;
        let running = Running::start(builder(&kcp, &provider, None).build().or_fail());
        for unbinds in [true, false] {
            let (a, _) = kcp
                .consumer(&format!("held-{unbinds}"), &provider, json!([]))
                .await;
            widget(&a, "w", "red").await;
            let in_a = running.ready(&a.id).await;
            let held = json!({ "metadata": { "finalizers": ["example.io/hold"] } });
            patch(&in_a, "w", held).await;
            if unbinds {
                unbind(&a).await;
            } else {
                let name = a.path.strip_prefix("root:").unwrap();
                let at = format!("/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}");
                kcps::delete(&kcp.at(&kcp.url("root")), &at).await;
            }
            let api = api(&in_a);
            while api.get("w").await.or_fail().metadata.deletion_timestamp.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            reaches(&in_a, |state| state.is_ready()).await;
            let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            // The workspace may leave before the answer is there.
            let _ = api.patch("w", &PatchParams::default(), &release).await;
            running.left(&a.id).await;
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_claimed_objects_are_seen_when_their_claim_is_applied() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    for kcp in served_worlds(1).await {
        let (claims, accepted) = claim();
        let provider = kcp.provider("claimed", claims).await;
        let builder = builder(&kcp, &provider, None).readiness(Readiness::PermissionClaimsApplied);
        let running = Running::start(builder.build().or_fail());
        let a = kcp.workspace("claimed-a").await;
        create(&a.client, MAPS, &config_map("old")).await;
        bind(&a, &provider, accepted).await;
        let in_a = running.ready(&a.id).await;
        let seen = Witness::of(&in_a, WatchRequest::of::<ConfigMap>());
        create(&a.client, MAPS, &config_map("new")).await;
        for name in ["default/old ", "default/new "] {
            eventually(PATIENCE, format!("{name} is seen"), || {
                seen.objects().contains(&name.to_owned())
            })
            .await;
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_service_account_with_the_least_rights_is_enough() {
    for kcp in served_worlds(1).await {
        let provider = kcp.provider("least", json!([])).await;
        let token = kcp.provider_token(&provider).await;
        let running = Running::start(builder(&kcp, &provider, Some(&token)).build().or_fail());
        let (a, _) = kcp.consumer("least-a", &provider, json!([])).await;
        widget(&a, "w", "red").await;
        let in_a = running.ready(&a.id).await;
        let seen = Witness::of_widgets(&in_a);
        seen.holds(&["default/w red"]).await;
        patch(&in_a, "w", json!({ "spec": { "color": "blue" } })).await;
        seen.holds(&["default/w blue"]).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_that_another_shard_takes_over_keeps_its_objects() {
    const OBJECTS: usize = 60;
    for kcp in served_worlds(2).await {
        if !kcp.has_two_shards().await {
            continue;
        }
        let provider = kcp.provider("shards", json!([])).await;
        let mut consumers = Vec::new();
        for shard in ["root", "shard-1"] {
            let consumer = kcp
                .workspace_with(&format!("shards-{shard}"), on_shard(shard))
                .await;
            bind(&consumer, &provider, json!([])).await;
            widget(&consumer, "w", shard).await;
            consumers.push(consumer);
        }
        let [a, b] = &*consumers else { unreachable!() };
        let running = Running::start(builder(&kcp, &provider, None).build().or_fail());
        let (in_a, in_b) = (running.ready(&a.id).await, running.ready(&b.id).await);
        let (seen_a, seen_b) = (Witness::of_widgets(&in_a), Witness::of_widgets(&in_b));
        seen_a.holds(&["default/w root"]).await;
        seen_b.holds(&["default/w shard-1"]).await;

        for number in 0..OBJECTS {
            widget(a, &format!("w{number}"), "red").await;
        }
        let all = || seen_a.objects().len() == OBJECTS + 1;
        eventually(PATIENCE, "all objects are seen", all).await;
        if kcp.move_to(a, "shard-1").await {
            reaches(&in_a, |state| state.is_ready()).await;
            let change = kcps::merge(
                &a.client,
                &format!("{IN_DEFAULT}/w"),
                &json!({ "spec": { "color": "moved" } }),
            )
            .await;
            assert_eq!(change.code, 200, "{change:?}");
            eventually(PATIENCE, "the change is seen", || {
                seen_a.objects().contains(&"default/w moved".to_owned())
            })
            .await;
            assert_eq!(seen_a.objects().len(), OBJECTS + 1);
            let gone: Vec<String> = seen_a.lines();
            assert!(gone.iter().all(|line| !line.starts_with('-')), "{gone:?}");
            assert!(running.fleet.get(&a.id).is_ok_and(|now| now.is_same(&in_a)));
            patch(&in_a, "w", json!({ "spec": { "color": "written" } })).await;
        }
        running.stop().await;
    }
}
