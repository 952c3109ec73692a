//! Programs that know nothing of kcp, on the workspaces of a double of kcp.

use std::time::Duration;

use mcr::{Access, Fleet, HUB, KubeconfigAccess, Manager, Trust};
use mcr_provider_kcp::KcpProvider;
use mcr_provider_single::SingleProvider;
use mcr_testkit::{
    kcp::{Kcp, KcpServer, KcpWorkspace},
    sim::SimCluster,
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};

use crate::program::Program;

#[path = "../../examples/fleet-report.rs"]
#[allow(dead_code, reason = "the main function and its flags")]
mod fleet_report;

const PATIENCE: Duration = Duration::from_secs(90);
const MAPS: &str = "configmaps";

/// A kcp with two workspaces on two shards, which bind an export that has no kind of its own.
struct Workspaces {
    server: KcpServer,
    consumers: [KcpWorkspace; 2],
    folder: tempfile::TempDir,
}

impl Workspaces {
    /// Both workspaces accept these claims.
    async fn claiming(resources: &[&str]) -> Self {
        let server = Kcp::builder().shards(2).serve().await.or_fail();
        let kcp = server.kcp();
        let claims = |state: Value| -> Vec<Value> {
            let claim = |resource: &&str| {
                let mut claim = json!({"group": "", "resource": resource, "verbs": ["*"]});
                if !state.is_null() {
                    claim["state"] = state.clone();
                    claim["selector"] = json!({"matchAll": true});
                }
                claim
            };
            resources.iter().map(claim).collect()
        };
        let export = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "fleet"},
            "spec": {"permissionClaims": claims(Value::Null)},
        });
        let home = kcp.create_workspace("root:fleet").or_fail();
        home.create(export).or_fail();
        let consumers = [("root:team-a", "root"), ("root:team-b", "shard-1")].map(|(path, shard)| {
            let workspace = kcp.create_workspace_on(path, shard).or_fail();
            let binding = json!({
                "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "fleet"},
                "spec": {
                    "reference": {"export": {"path": "root:fleet", "name": "fleet"}},
                    "permissionClaims": claims("Accepted".into()),
                },
            });
            workspace.create(binding).or_fail();
            workspace
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("controller.kubeconfig"),
            server.kubeconfig("root:fleet"),
        )
        .unwrap();
        Self {
            server,
            consumers,
            folder,
        }
    }

    /// Starts an example with the flags that lead to the workspaces.
    fn start(&self, example: &str, args: &[&str]) -> Program {
        let hub = self.folder.path().join("controller.kubeconfig");
        let provider = ["--provider", "kcp", "--slice", "fleet", "--hub-kubeconfig"];
        Program::start(example, [args, &provider, &[hub.to_str().unwrap()][..]].concat())
    }

}

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
    let fleet = Workspaces::claiming(&[MAPS]).await;
    for workspace in &fleet.consumers {
        workspace
            .create(map("counted", "true", json!({"a": ""})))
            .or_fail();
        workspace
            .create(map("other", "false", json!({"a": ""})))
            .or_fail();
    }
    let program = fleet.start("uniform", &[]);
    for workspace in &fleet.consumers {
        program.line("a first count", |line| {
            line["cluster"] == workspace.id() && line["name"] == "counted" && line["entries"] == 1
        });
        has_entries(workspace, "counted", "1").await;
    }
    let [a, b] = &fleet.consumers;
    a.apply(map("counted", "true", json!({"a": "", "b": ""})))
        .or_fail();
    has_entries(a, "counted", "2").await;
    has_entries(b, "counted", "1").await;
    let lines = program.interrupt();
    assert!(lines.iter().all(|line| line["name"] == "counted"), "{lines:#?}");
}
