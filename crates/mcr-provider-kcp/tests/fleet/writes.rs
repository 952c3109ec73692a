//! Writes of clients of workspaces.

use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use mcr_core::Cluster;
use mcr_kcp_double::KcpWorkspace;
use serde_json::{Value, json};

use crate::world::*;

const WIDGETS: &str = "widgets.example.io";

/// Two workspaces on two shards, each with a widget of the same name.
async fn two(world: &World, running: &Running) -> [(KcpWorkspace, Cluster); 2] {
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    widget(&a, "w", "red");
    widget(&b, "w", "blue");
    let (in_a, in_b) = (running.ready(a.id()).await, running.ready(b.id()).await);
    [(a, in_a), (b, in_b)]
}

fn api(cluster: &Cluster) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.client(), "default", &widgets())
}

fn live(workspace: &KcpWorkspace) -> Value {
    workspace.get(WIDGETS, "default/w").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_writes_arrive_in_their_workspace_on_its_shard() {
    let world = World::with_shards(2).await;
    let running = Running::start(world.builder().build().or_fail());
    let [(a, in_a), (b, in_b)] = two(&world, &running).await;
    let params = PatchParams::default();
    for (workspace, cluster, untouched) in [(&a, &in_a, &b), (&b, &in_b, &a)] {
        let (api, other) = (api(cluster), live(untouched));
        let first = api.get("w").await.or_fail();
        let merge = json!({"spec": {"color": null, "size": 1}});
        api.patch("w", &params, &Patch::Merge(merge)).await.or_fail();
        assert_eq!(live(workspace)["spec"], json!({"size": 1}));
        let edit = json!([{"op": "add", "path": "/spec/shape", "value": "round"}]);
        let edit = http::Request::patch("/apis/example.io/v1/namespaces/default/widgets/w")
            .header("content-type", "application/json-patch+json")
            .body(edit.to_string().into_bytes())
            .unwrap();
        cluster.client().request::<DynamicObject>(edit).await.or_fail();
        assert_eq!(live(workspace)["spec"], json!({"size": 1, "shape": "round"}));
        let status = json!({"status": {"phase": "Up", "message": null}});
        api.patch_status("w", &params, &Patch::Merge(status))
            .await
            .or_fail();
        assert_eq!(live(workspace)["status"], json!({"phase": "Up"}));

        let stale = api
            .replace("w", &PostParams::default(), &first)
            .await
            .unwrap_err();
        assert!(
            matches!(&stale, kube::Error::Api(status) if status.code == 409),
            "{stale:?}"
        );
        let mut newest = api.get("w").await.or_fail();
        newest.data["spec"] = json!({"color": "green"});
        api.replace("w", &PostParams::default(), &newest).await.or_fail();
        let now = live(workspace);
        assert_eq!(
            (&now["spec"], &now["status"]),
            (&json!({"color": "green"}), &json!({"phase": "Up"}))
        );
        assert_eq!(live(untouched), other, "the other workspace has not changed");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_server_side_apply_is_refused_unless_it_is_allowed() {
    for allowed in [false, true] {
        let world = World::with_shards(2).await;
        let mut builder = world.builder();
        if allowed {
            builder = builder.allow_lossy_apply();
        }
        let running = Running::start(builder.build().or_fail());
        let [(a, in_a), (b, _)] = two(&world, &running).await;
        assert!(
            !in_a.capabilities().server_side_apply(),
            "it is lossy, allowed or not"
        );
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 2},
        });
        let params = PatchParams::apply("test").force();
        let applied = api(&in_a).patch("w", &params, &Patch::Apply(&object)).await;
        if allowed {
            applied.or_fail();
            assert_eq!(live(&a)["spec"], json!({"color": "red", "size": 2}));
        } else {
            let error = applied.unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(&error, kube::Error::Api(status) if status.code == 415),
                "{error:?}"
            );
            assert!(
                text.contains("server-side apply is refused") && text.contains("allow_lossy_apply"),
                "{text}"
            );
            assert_eq!(live(&a)["spec"], json!({"color": "red"}));
        }
        assert_eq!(live(&b)["spec"], json!({"color": "blue"}));
        running.stop().await;
    }
}
