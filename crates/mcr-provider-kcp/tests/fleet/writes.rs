//! Writes of clients of workspaces.

use kube::{
    Api,
    api::{Patch, PatchParams},
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
