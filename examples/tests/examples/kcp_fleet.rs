//! A program that knows nothing of kcp, on the workspaces of a double of kcp.

use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::{Value, json};

use crate::{kcp::PATIENCE, program::Program};

const MAPS: &str = "configmaps";

fn map(name: &str, counted: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"example.io/count": counted}},
        "data": data,
    })
}

/// The annotation that `uniform` writes.
async fn has_entries(workspace: &KcpWorkspace, name: &str, count: &str) {
    let has = || {
        let map = workspace.get(MAPS, &format!("default/{name}"))?;
        (map["metadata"]["annotations"]["example.io/entries"] == count).then_some(())
    };
    eventually(PATIENCE, "the annotation", has).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plain_reconciler_works_in_every_workspace() {
    let server = Kcp::builder().shards(2).serve().await.or_fail();
    let kcp = server.kcp();
    let claim = json!({"group": "", "resource": MAPS, "verbs": ["*"]});
    let mut accepted = claim.clone();
    (accepted["state"], accepted["selector"]) = ("Accepted".into(), json!({"matchAll": true}));
    let home = kcp.create_workspace("root:fleet").or_fail();
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "fleet"},
        "spec": {"permissionClaims": [claim]},
    });
    home.create(export).or_fail();
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "fleet"},
        "spec": {
            "reference": {"export": {"path": "root:fleet", "name": "fleet"}}, "permissionClaims": [accepted],
        },
    });
    let consumers = [("root:team-a", "root"), ("root:team-b", "shard-1")].map(|(path, shard)| {
        let workspace = kcp.create_workspace_on(path, shard).or_fail();
        workspace.create(binding.clone()).or_fail();
        for (name, label) in [("counted", "true"), ("other", "false")] {
            workspace.create(map(name, label, json!({"a": ""}))).or_fail();
        }
        workspace
    });
    let folder = tempfile::tempdir().unwrap();
    let hub = folder.path().join("controller.kubeconfig");
    std::fs::write(&hub, server.kubeconfig("root:fleet")).unwrap();
    let args = "--provider kcp --slice fleet --hub-kubeconfig";
    let program = Program::start("uniform", args.split(' ').chain([hub.to_str().unwrap()]));
    for workspace in &consumers {
        program.line("a first count", |line| {
            line["cluster"] == workspace.id() && line["name"] == "counted" && line["entries"] == 1
        });
        has_entries(workspace, "counted", "1").await;
    }
    let [a, b] = &consumers;
    a.apply(map("counted", "true", json!({"a": "", "b": ""})))
        .or_fail();
    has_entries(a, "counted", "2").await;
    has_entries(b, "counted", "1").await;
    let lines = program.interrupt();
    assert!(lines.iter().all(|line| line["name"] == "counted"), "{lines:#?}");
}
