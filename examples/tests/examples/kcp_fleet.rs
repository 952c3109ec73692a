//! Programs that know nothing of kcp, on the workspaces of a double of kcp.

use std::time::Duration;

use mcr::{Access, Fleet, HUB, KubeconfigAccess, Manager, Trust};
use mcr_kcp_double::{Kcp, KcpServer, KcpWorkspace};
use mcr_provider_kcp::KcpProvider;
use mcr_provider_single::SingleProvider;
use mcr_testkit::{
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

    /// Writes the policy of `fleet-policy`, and a namespace in each workspace that it selects.
    fn policy(&self) -> String {
        for workspace in &self.consumers {
            let metadata = json!({"name": "shop", "labels": {"team": "shop"}});
            workspace
                .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
                .or_fail();
        }
        let path = self.folder.path().join("policy.yaml");
        let text = json!({
            "namespaces": {"matchLabels": {"team": "shop"}}, "labels": {"checked": "yes"},
            "configMap": {"name": "platform", "data": {}},
        });
        std::fs::write(&path, text.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// No workspace has what the policy requires.
    fn are_untouched(&self) {
        for workspace in &self.consumers {
            let namespace = workspace.get("namespaces", "shop").unwrap();
            assert_eq!(namespace["metadata"]["labels"]["checked"], Value::Null);
            assert_eq!(workspace.get(MAPS, "shop/platform"), None);
        }
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

/// The policy gives up labels by leaving them out of a server-side apply, and kcp would keep them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_uses_server_side_apply_is_refused_with_what_to_send_instead() {
    let fleet = Workspaces::claiming(&[MAPS, "namespaces"]).await;
    let program = fleet.start("fleet-policy", &["--policy", &fleet.policy()]);
    for advice in [
        "server-side apply is refused",
        "Send a merge patch with null for each field to remove",
        "KcpProviderBuilder::allow_lossy_apply",
    ] {
        program.logged(advice, 2);
    }
    fleet.are_untouched();
    assert_eq!(program.interrupt(), [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_over_a_kind_without_a_claim_names_the_claim_to_add() {
    let fleet = Workspaces::claiming(&[MAPS]).await;
    let program = fleet.start("fleet-policy", &["--policy", &fleet.policy()]);
    program.logged(
        "APIExport fleet neither exports nor claims namespaces; add it to spec.resources or to spec.permissionClaims",
        1,
    );
    fleet.are_untouched();
    assert_eq!(program.interrupt(), [] as [Value; 0]);
}

/// The hub is an ordinary cluster here. A workspace has no nodes, and the report says so of each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_names_every_workspace_and_why_it_is_not_counted() {
    let workspaces = Workspaces::claiming(&[MAPS]).await;
    let hub = SimCluster::builder().name(HUB).build();
    let at_hub = hub.serve().await.or_fail();
    let kubeconfig = workspaces.server.kubeconfig("root:fleet");
    let fleet = Fleet::builder()
        .provider(
            SingleProvider::named(HUB, KubeconfigAccess::new(at_hub.kubeconfig(), Trust::Trusted)).or_fail(),
        )
        .provider(
            KcpProvider::builder()
                .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
                .slice("fleet")
                .build()
                .or_fail(),
        )
        .build();
    let every = Duration::from_millis(400);
    let manager = Manager::builder()
        .fleet(fleet)
        .task("report", move |fleet, stop| fleet_report::run(fleet, stop, every))
        .build()
        .or_fail();
    let background = Background::start(|stop| manager.run_until(stop));
    let ids = workspaces.consumers.each_ref().map(KcpWorkspace::id);
    let report = || {
        let report = hub.get(MAPS, "default/fleet-report")?;
        let data = report["data"].as_object()?;
        let is_there = |id| {
            let line = data.get(id)?.as_str()?;
            (line.starts_with("missing: ") && line.contains("access denied")).then_some(())
        };
        ids.into_iter().try_for_each(is_there)
    };
    eventually(PATIENCE, "a report that says why", report).await;
    background.stop().await.or_fail();
}
