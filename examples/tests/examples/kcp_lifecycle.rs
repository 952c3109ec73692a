//! `kcp-initializing` and `kcp-terminating`, on a double of kcp, with the manifests and the commands of their READMEs.

use std::{collections::BTreeSet, fs};

use mcr_kcp_double::{Kcp, KcpServer, KcpWorkspace};
use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::json;

use crate::kcp::{self, Example, PATIENCE, Right, Started, Walk, granted};

const INITIALIZING: Example = Example("kcp-initializing");
const TERMINATING: Example = Example("kcp-terminating");
const WORKSPACES: &str = "workspaces.tenancy.kcp.io";
const MAPS: &str = "configmaps";

/// A kcp with `root:platform`, which has the type of an example and its controller's user.
async fn platform(example: Example, role: &str) -> (KcpServer, KcpWorkspace) {
    let server = Kcp::builder().shards(2).serve().await.or_fail();
    let platform = server.kcp().create_workspace("root:platform").or_fail();
    example.apply(&platform, &["workspacetype.yaml", "rbac.yaml"]);
    server.kcp().set_user("least", example.user(&platform, role));
    (server, platform)
}

/// Creates a workspace of the example's type on a shard.
fn create(server: &KcpServer, example: Example, name: &str, shard: &str) {
    let mut workspace = example.manifest("workspace.yaml").remove(0);
    workspace["metadata"]["name"] = name.into();
    workspace["spec"]["location"] = json!({"selector": {"matchLabels": {"name": shard}}});
    root(server).create(workspace).or_fail();
}

fn root(server: &KcpServer) -> KcpWorkspace {
    server.kcp().workspace("root").unwrap()
}

async fn phase(server: &KcpServer, name: &str, phase: &str) -> KcpWorkspace {
    let is = || {
        let workspace = root(server).get(WORKSPACES, name)?;
        (workspace["status"]["phase"] == phase).then_some(())?;
        server.kcp().workspace(&format!("root:{name}"))
    };
    eventually(PATIENCE, &format!("{name} is {phase}"), is).await
}

/// What the controller did: in the workspace of the type, and by the rules of the type in the other workspaces.
fn used(server: &KcpServer, verb: &str) -> BTreeSet<Right> {
    let mut used = BTreeSet::new();
    for event in kcp::requests(server) {
        let of_stage = event.uri.contains("workspaces/") && event.uri.contains("/services/");
        // A workspace that has left can't be entered. A right that is missing shows as one that is not used.
        if event.code == 403 && of_stage {
            continue;
        }
        assert_ne!(event.code, 403, "{event:?}");
        if of_stage {
            used.insert(("workspacetypes".to_owned(), verb.to_owned()));
        }
        if !of_stage || event.resource != "logicalclusters" {
            used.insert((event.resource.clone(), event.verb.clone()));
        }
    }
    used
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_workspace_opens_with_what_the_initializer_put_there_and_each_right_is_used() {
    let role = "team-controller";
    let (server, _platform) = platform(INITIALIZING, role).await;
    // One that waits already, and one that is created while the controller runs.
    create(&server, INITIALIZING, "team-a", "root");
    phase(&server, "team-a", "Initializing").await;
    let kubeconfig = server.kubeconfig_with_token("root:platform", "least");
    let started = Started::new(INITIALIZING, &kubeconfig, &[]);
    create(&server, INITIALIZING, "team-b", "shard-1");
    for name in ["team-a", "team-b"] {
        let workspace = phase(&server, name, "Ready").await;
        started.reports(0, &workspace, "initialized");
        let map = workspace.get(MAPS, "default/platform").unwrap();
        assert_eq!(
            map["data"],
            json!({"contact": "#platform", "path": workspace.path()})
        );
    }
    started.program.interrupt();
    let of_type = INITIALIZING.manifest("workspacetype.yaml").remove(0);
    let inside = of_type["spec"]["initializerPermissions"].as_array().unwrap();
    let mut rights = granted(&[&INITIALIZING.rules(role)[..], inside].concat());
    // An apply needs it for an object that is not there, and is sent as a patch.
    assert!(rights.remove(&("configmaps".to_owned(), "create".to_owned())));
    assert_eq!(used(&server, "initialize"), rights);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_is_gone_when_its_files_are_and_each_right_is_used() {
    let role = "stored-controller";
    let (server, _platform) = platform(TERMINATING, role).await;
    let mut workspaces = Vec::new();
    for (name, shard) in [("team-a", "root"), ("team-b", "shard-1")] {
        create(&server, TERMINATING, name, shard);
        workspaces.push(phase(&server, name, "Ready").await);
    }
    let kubeconfig = server.kubeconfig_with_token("root:platform", "least");
    // A deletion that waits already, and one while the controller runs.
    root(&server).delete(WORKSPACES, "team-a").or_fail();
    let started = Started::new(TERMINATING, &kubeconfig, &[("--folder", "files")]);
    let files = |workspace: &KcpWorkspace| started.folder.path().join("files").join(workspace.id());
    started.reports(0, &workspaces[0], "cleaned up");
    // It can't remove this, and the workspace waits.
    let held = files(&workspaces[1]);
    fs::create_dir_all(held.parent().unwrap()).unwrap();
    fs::write(&held, "").unwrap();
    root(&server).delete(WORKSPACES, "team-b").or_fail();
    started.program.logged("Not a directory", 2);
    phase(&server, "team-b", "Terminating").await;
    fs::remove_file(&held).unwrap();
    fs::create_dir(&held).unwrap();
    fs::write(held.join("greeting.txt"), "hello").unwrap();
    started.reports(0, &workspaces[1], "cleaned up");
    assert!(!held.exists());
    let are_gone = || {
        let left = root(&server).list(WORKSPACES, "");
        left.iter()
            .all(|one| one["metadata"]["name"] == "platform")
            .then_some(())
    };
    eventually(PATIENCE, "both workspaces are gone", are_gone).await;
    started.program.interrupt();
    let rights = granted(&TERMINATING.rules(role));
    assert_eq!(used(&server, "terminate"), rights);
}

fn readme(example: Example) -> String {
    format!("examples/examples/{}/README.md", example.0)
}

#[test]
fn every_manifest_is_in_a_command_of_its_readme() {
    for example in [INITIALIZING, TERMINATING] {
        example.applies_every_manifest(&readme(example));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_lead_to_a_prepared_workspace() {
    let page = readme(INITIALIZING);
    let place = ("root:platform", "team-controller");
    let Some(mut walk) = Walk::begin((INITIALIZING, &page), place, &[]).await else {
        return;
    };
    walk.next().await;
    phase(&walk.server, "team-a", "Initializing").await;
    let program = walk.start(INITIALIZING, &[]);
    program.line("the workspace", |line| line["workspace"] == "root:team-a");
    let shown = walk.next().await;
    assert!(shown.ends_with("#platform root:team-a"), "{shown}");
    assert!(walk.left.is_empty());
    program.interrupt();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_lead_to_a_workspace_that_is_gone() {
    let page = readme(TERMINATING);
    let place = ("root:platform", "stored-controller");
    let Some(mut walk) = Walk::begin((TERMINATING, &page), place, &[]).await else {
        return;
    };
    let files = |walk: &Walk| fs::read_dir(walk.terminal.file(".kcp/files")).unwrap().count();
    walk.next().await;
    assert_eq!(files(&walk), 1);
    walk.next().await;
    phase(&walk.server, "team-a", "Terminating").await;
    let program = walk.start(TERMINATING, &[("--folder", ".kcp/files")]);
    program.line("the workspace", |line| line["workspace"] == "root:team-a");
    walk.next().await;
    assert!(files(&walk) == 0 && walk.left.is_empty());
    program.interrupt();
}
