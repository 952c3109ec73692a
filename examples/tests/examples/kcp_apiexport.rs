//! `kcp-apiexport`, on a double of kcp, with the manifests and the commands of its README.

use std::{collections::BTreeSet, fs};

use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::{Value, json};

use crate::kcp::{self, Example, PATIENCE, Right, Started, Walk, granted};

const EXAMPLE: Example = Example("kcp-apiexport");
const ROLE: &str = "sites-controller";
const PAGE: &str = "docs/kcp-in-ten-minutes.md";
const SITES: &str = "sites.web.example.io";
const BINDINGS: &str = "apibindings.apis.kcp.io";
const EVENTS: &str = "events.events.k8s.io";

fn start(kubeconfig: &str) -> Started {
    Started::new(EXAMPLE, kubeconfig, &[("--folder", "pages")])
}

fn page(started: &Started, workspace: &KcpWorkspace) -> Option<String> {
    let page = format!("pages/{}/default/shop.html", workspace.id());
    fs::read_to_string(started.folder.path().join(page)).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sites_of_two_workspaces_become_pages_with_the_rights_of_the_manifest_and_each_is_used() {
    let server = Kcp::builder().shards(2).serve().await.or_fail();
    let kcp = server.kcp();
    let names: Vec<Value> = EXAMPLE
        .manifest("workspaces.yaml")
        .into_iter()
        .map(|object| object["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["sites", "team-a", "team-b"]);
    let sites = kcp.create_workspace("root:sites").or_fail();
    let a = kcp.create_workspace_on("root:team-a", "root").or_fail();
    let b = kcp.create_workspace_on("root:team-b", "shard-1").or_fail();
    EXAMPLE.apply(&sites, &["export.yaml", "rbac.yaml"]);
    kcp.set_user("least", EXAMPLE.user(&sites, ROLE));
    // It starts without any consumer.
    let started = start(&server.kubeconfig_with_token("root:sites", "least"));
    EXAMPLE.apply(&a, &["binding-team-a.yaml", "site.yaml"]);
    EXAMPLE.apply(&b, &["binding-team-b.yaml", "site.yaml"]);
    for workspace in [&a, &b] {
        started.reports(0, workspace, "published");
        let name = format!("{}/default/shop.html", workspace.id());
        let site = workspace.get(SITES, "default/shop").unwrap();
        assert_eq!(
            site["status"],
            json!({"phase": "Published", "page": name, "observedGeneration": 1})
        );
        assert!(page(&started, workspace).unwrap().contains("Opens soon."));
    }
    let reported: Vec<Value> = a
        .list(EVENTS, "default")
        .into_iter()
        .map(|event| event["note"].clone())
        .collect();
    assert_eq!(reported, [format!("the page is {}/default/shop.html", a.id())]);
    assert!(
        b.list(EVENTS, "default").is_empty(),
        "team-b has rejected the claim"
    );

    // Text of a consumer does not become HTML, and the other workspace's page stays.
    let mark = started.program.mark();
    let mut changed = EXAMPLE.manifest("site.yaml").remove(0);
    changed["spec"]["text"] = "<script>".into();
    a.apply(changed).or_fail();
    started.reports(mark, &a, "published");
    assert!(page(&started, &a).unwrap().contains("<p>&lt;script&gt;</p>"));
    assert!(page(&started, &b).unwrap().contains("Opens soon."));
    let is_patched = || {
        a.list(EVENTS, "default")
            .iter()
            .any(|event| !event["series"].is_null())
            .then_some(())
    };
    eventually(PATIENCE, "the same event once more", is_patched).await;

    // kcp deletes the Sites of a workspace that unbinds the API, and the finalizer holds them until their pages are gone.
    a.delete(BINDINGS, "sites").or_fail();
    b.delete(SITES, "default/shop").or_fail();
    for workspace in [&a, &b] {
        started.reports(mark, workspace, "removed");
        assert_eq!(page(&started, workspace), None);
    }
    let is_gone =
        || (a.get(BINDINGS, "sites").is_none() && b.get(SITES, "default/shop").is_none()).then_some(());
    eventually(PATIENCE, "all is released", is_gone).await;
    let lines = started.program.interrupt();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    // Events are refused where the claim is rejected.
    let used = kcp::used(&server, Some(("events", "create")));
    assert_eq!(used, granted(&EXAMPLE.rules(ROLE)));
}

/// The rules in the README of the provider's crate are those of the example, apart from what this controller writes.
#[test]
fn the_rights_in_the_readme_of_the_provider_are_those_of_the_manifest() {
    let readme = include_str!("../../../crates/mcr-provider-kcp/README.md");
    let (_, block) = readme.split_once("```yaml\nrules:").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let documented: Value = serde_saphyr::from_str(&format!("rules:{block}")).or_fail();
    let documented = granted(documented["rules"].as_array().unwrap());
    let writes =
        |(resource, verb): &Right| resource == "apiexports/content" && matches!(&**verb, "create" | "patch");
    let of_example: BTreeSet<Right> = granted(&EXAMPLE.rules(ROLE))
        .into_iter()
        .filter(|right| !writes(right))
        .collect();
    assert_eq!(documented, of_example);
}

#[test]
fn every_manifest_is_in_a_command_of_the_page() {
    EXAMPLE.applies_every_manifest(PAGE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_lead_to_pages_and_away() {
    let Some(mut walk) = Walk::begin((EXAMPLE, PAGE), ("root:sites", ROLE), &[]).await else {
        return;
    };
    walk.next().await;
    let program = walk.start(EXAMPLE, &[("--folder", ".kcp/pages")]);
    let announced = |workspace: &'static str, event: &'static str| {
        move |line: &Value| line["workspace"] == workspace && line["event"] == event
    };
    program.line("the first page", announced("root:team-a", "published"));
    program.line("the second page", announced("root:team-b", "published"));
    let shown = walk.next().await;
    assert_eq!(shown.matches("<h1>The shop</h1>").count(), 2, "{shown}");
    assert_eq!(
        shown.matches("Published").count(),
        3,
        "two Sites and one event: {shown}"
    );
    let mark = program.mark();
    walk.next().await;
    program.after(mark, "the change", announced("root:team-a", "published"));
    for workspace in ["root:team-a", "root:team-b"] {
        program.after(mark, "the end", announced(workspace, "removed"));
    }
    let left = fs::read_dir(walk.terminal.file(".kcp/pages"))
        .unwrap()
        .flat_map(|of| fs::read_dir(of.unwrap().path().join("default")).unwrap());
    assert_eq!(left.count(), 0);
    program.interrupt();
}
