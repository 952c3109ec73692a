//! `kcp-path-aware`, on a double of kcp, with the manifests and the commands of its README.

use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::{Value, json};

use crate::kcp::{self, Example, PATIENCE, Started, Walk, granted};

const EXAMPLE: Example = Example("kcp-path-aware");
const ROLE: &str = "sharing-controller";
const README: &str = "examples/examples/kcp-path-aware/README.md";
const MAPS: &str = "configmaps";

fn data(workspace: &KcpWorkspace) -> Value {
    workspace.get(MAPS, "default/endpoints").unwrap()["data"].clone()
}

async fn has(workspace: &KcpWorkspace, wanted: Value) {
    let has = || (data(workspace) == wanted).then_some(());
    eventually(PATIENCE, &format!("a copy with {wanted}"), has).await;
}

/// The original with other data, shared with these workspaces.
fn original(shared_with: &str, data: Value) -> Value {
    let mut map = EXAMPLE.manifest("original.yaml").remove(0);
    map["metadata"]["annotations"]["example.io/shared-with"] = shared_with.into();
    map["data"] = data;
    map
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspaces_share_by_path_with_the_rights_of_the_manifest_and_a_path_follows_its_newest_workspace() {
    let server = Kcp::builder().shards(2).serve().await.or_fail();
    let kcp = server.kcp();
    let sharing = kcp.create_workspace("root:sharing").or_fail();
    let b = kcp.create_workspace_on("root:team-b", "shard-1").or_fail();
    EXAMPLE.apply(&sharing, &["export.yaml", "rbac.yaml"]);
    kcp.set_user("least", EXAMPLE.user(&sharing, ROLE));
    let started = Started::new(
        EXAMPLE,
        &server.kubeconfig_with_token("root:sharing", "least"),
        &[],
    );
    // No workspace has the path that the copy names.
    EXAMPLE.apply(&b, &["binding.yaml", "copy.yaml"]);
    let line = started.reports(0, &b, "no workspace");
    assert_eq!(line["of"], "root:team-a");

    let first = kcp.create_workspace_on("root:team-a", "root").or_fail();
    EXAMPLE.apply(&first, &["original.yaml", "binding.yaml"]);
    started.reports(0, &b, "copied");
    assert_eq!(data(&b), json!({"shop": "https://shop.example.com"}));

    // A change of the original, and one of the copy. What the original does not have is removed.
    first
        .apply(original("root:team-c, root:team-b", json!({"mail": "mx"})))
        .or_fail();
    has(&b, json!({"mail": "mx"})).await;
    let mut changed = b.get(MAPS, "default/endpoints").unwrap();
    changed["data"] = json!({"mail": "other", "more": ""});
    b.update(changed).or_fail();
    has(&b, json!({"mail": "mx"})).await;

    // It is not shared with this workspace any more, and the copy keeps what it has.
    let mark = started.program.mark();
    first
        .apply(original("root:team-c", json!({"mail": "secret"})))
        .or_fail();
    started.reports(mark, &b, "not shared");
    assert_eq!(data(&b), json!({"mail": "mx"}));

    // Another workspace takes the path.
    kcp.delete_workspace("root:team-a").or_fail();
    let is_gone = || kcp.workspace("root:team-a").is_none().then_some(());
    eventually(PATIENCE, "the workspace is gone", is_gone).await;
    let second = kcp.create_workspace_on("root:team-a", "shard-1").or_fail();
    assert_ne!(first.id(), second.id());
    second
        .apply(original("root:team-b", json!({"mail": "new"})))
        .or_fail();
    EXAMPLE.apply(&second, &["binding.yaml"]);
    has(&b, json!({"mail": "new"})).await;

    started.program.interrupt();
    assert_eq!(kcp::used(&server, None), granted(&EXAMPLE.rules(ROLE)));
}

#[test]
fn every_manifest_is_in_a_command_of_the_readme() {
    EXAMPLE.applies_every_manifest(README);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_lead_to_a_copy() {
    let Some(mut walk) = Walk::begin((EXAMPLE, README), ("root:sharing", ROLE), &[]).await else {
        return;
    };
    let program = walk.start(EXAMPLE, &[]);
    walk.next().await;
    program.line("the copy", |line| {
        line["workspace"] == "root:team-b" && line["event"] == "copied"
    });
    assert_eq!(walk.next().await, "https://shop.example.com");
    assert!(walk.left.is_empty());
    program.interrupt();
}
