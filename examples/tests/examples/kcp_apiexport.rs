//! `kcp-apiexport`, on a double of kcp, with the manifests and the commands of its README.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use mcr_testkit::{
    control_plane::Binaries,
    kcp::{Kcp, KcpServer, KcpUser, KcpWorkspace},
    sim::SimRule,
    waiting::{OrFail, eventually},
};
use serde_json::{Value, json};

use crate::program::Program;

const PATIENCE: Duration = Duration::from_secs(90);
const SITES: &str = "sites.web.example.io";
const BINDINGS: &str = "apibindings.apis.kcp.io";
const EVENTS: &str = "events.events.k8s.io";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kcp-apiexport")
}

/// The objects of a manifest of the example.
fn manifest(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(example().join(name)).or_fail();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).or_fail())
        .collect()
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The rules of the controller's role.
fn rules() -> Vec<Value> {
    let mut all = manifest("rbac.yaml").into_iter();
    let is_role =
        |object: &Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "sites-controller";
    let role = all.find(is_role).unwrap();
    role["rules"].as_array().unwrap().clone()
}

/// A user with the rights of the manifest in the workspace of the API.
fn controller(workspace: &KcpWorkspace) -> KcpUser {
    rules().iter().fold(KcpUser::new("controller"), |user, rule| {
        let of = |field: &str| texts(&rule[field]);
        let granted = SimRule::new(of("apiGroups"), of("resources"), of("verbs")).names(of("resourceNames"));
        user.rule(workspace.id(), granted)
    })
}

/// A folder for the pages and for kubeconfigs, and the program in it.
struct Started {
    folder: tempfile::TempDir,
    program: Program,
}

fn start(kubeconfig: &str) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let hub = folder.path().join("controller.kubeconfig");
    fs::write(&hub, kubeconfig).unwrap();
    let pages = folder.path().join("pages");
    let args = [
        "--hub-kubeconfig",
        hub.to_str().unwrap(),
        "--folder",
        pages.to_str().unwrap(),
    ];
    let program = Program::start("kcp-apiexport", args);
    Started { folder, program }
}

impl Started {
    fn page(&self, workspace: &KcpWorkspace) -> Option<String> {
        let page = format!("pages/{}/default/shop.html", workspace.id());
        fs::read_to_string(self.folder.path().join(page)).ok()
    }

    fn says(&self, after: usize, workspace: &KcpWorkspace, event: &str) {
        let line = |line: &Value| {
            line["cluster"] == workspace.id()
                && line["workspace"] == workspace.path()
                && line["event"] == event
        };
        let what = format!("{} in {}", event, workspace.path());
        self.program.after(after, &what, line);
    }
}

/// Applies the manifests in the workspaces that they are for.
fn apply(workspace: &KcpWorkspace, manifests: &[&str]) {
    for object in manifests.iter().flat_map(|name| manifest(name)) {
        workspace.apply(object).or_fail();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sites_of_two_workspaces_become_pages_with_the_rights_of_the_manifest_and_each_is_used() {
    let server = Kcp::builder().shards(2).serve().await.or_fail();
    let kcp = server.kcp();
    let names: Vec<Value> = manifest("workspaces.yaml")
        .into_iter()
        .map(|object| object["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["sites", "team-a", "team-b"]);
    let sites = kcp.create_workspace("root:sites").or_fail();
    let a = kcp.create_workspace_on("root:team-a", "root").or_fail();
    let b = kcp.create_workspace_on("root:team-b", "shard-1").or_fail();
    apply(&sites, &["export.yaml", "rbac.yaml"]);
    kcp.set_user("least", controller(&sites));
    // It starts without any consumer.
    let started = start(&server.kubeconfig_with_token("root:sites", "least"));
    apply(&a, &["binding-team-a.yaml", "site.yaml"]);
    apply(&b, &["binding-team-b.yaml", "site.yaml"]);
    for workspace in [&a, &b] {
        started.says(0, workspace, "published");
        let page = format!("{}/default/shop.html", workspace.id());
        let site = workspace.get(SITES, "default/shop").unwrap();
        assert_eq!(
            site["status"],
            json!({"phase": "Published", "page": page, "observedGeneration": 1})
        );
        assert!(started.page(workspace).unwrap().contains("Opens soon."));
    }
    let told: Vec<Value> = a
        .list(EVENTS, "default")
        .into_iter()
        .map(|event| event["note"].clone())
        .collect();
    assert_eq!(told, [format!("the page is {}/default/shop.html", a.id())]);
    assert!(
        b.list(EVENTS, "default").is_empty(),
        "team-b has rejected the claim"
    );

    // Text of a consumer does not become HTML, and the other workspace's page stays.
    let mark = started.program.mark();
    let mut changed = manifest("site.yaml").remove(0);
    changed["spec"]["text"] = "<script>".into();
    a.apply(changed).or_fail();
    started.says(mark, &a, "published");
    assert!(started.page(&a).unwrap().contains("<p>&lt;script&gt;</p>"));
    assert!(started.page(&b).unwrap().contains("Opens soon."));
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
        started.says(mark, workspace, "removed");
        assert_eq!(started.page(workspace), None);
    }
    let is_gone =
        || (a.get(BINDINGS, "sites").is_none() && b.get(SITES, "default/shop").is_none()).then_some(());
    eventually(PATIENCE, "all is released", is_gone).await;
    let lines = started.program.interrupt();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert_eq!(used(&server), granted(&rules()));
}

/// A resource and a verb.
type Right = (String, String);

fn granted(rules: &[Value]) -> BTreeSet<Right> {
    let all = rules.iter().flat_map(|rule| {
        let verbs = texts(&rule["verbs"]);
        let resources = texts(&rule["resources"]).into_iter();
        resources.flat_map(move |resource| {
            verbs
                .clone()
                .into_iter()
                .map(move |verb| (resource.clone(), verb))
        })
    });
    all.collect()
}

/// What the controller did. Events are refused where the claim is rejected, and nothing else is refused.
fn used(server: &KcpServer) -> BTreeSet<Right> {
    let mut used = BTreeSet::new();
    for shard in server.kcp().shards() {
        let log = shard.audit();
        let by_controller =
            |event: &&mcr_testkit::sim::SimAuditEvent| event.user == "controller" && event.is_start();
        for event in log
            .events()
            .filter(by_controller)
            .filter(|event| !event.resource.is_empty())
        {
            let anybody = ["authentication.k8s.io", "authorization.k8s.io"];
            if anybody.contains(&event.group.as_str()) || event.resource == "namespaces" {
                continue;
            }
            if event.code == 403 {
                assert_eq!(
                    (&*event.resource, &*event.verb),
                    ("events", "create"),
                    "{event:?}"
                );
                continue;
            }
            let of_content = event.uri.contains("/services/apiexport/");
            let resource = if of_content {
                "apiexports/content"
            } else {
                &event.resource
            };
            used.insert((resource.to_owned(), event.verb.clone()));
        }
    }
    used
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
    let of_example: BTreeSet<Right> = granted(&rules())
        .into_iter()
        .filter(|right| !writes(right))
        .collect();
    assert_eq!(documented, of_example);
}

/// The blocks of commands in the README, without the programs that go on.
fn blocks() -> Vec<String> {
    let readme = fs::read_to_string(example().join("README.md")).or_fail();
    let blocks = readme
        .split("\n```sh\n")
        .skip(1)
        .map(|rest| rest.split_once("\n```").unwrap().0.to_owned());
    blocks.filter(|block| !block.starts_with("cargo ")).collect()
}

/// Every manifest is applied by a command of the README, and nothing else is.
#[test]
fn every_manifest_is_in_a_command_of_the_readme() {
    let commands = blocks().join("\n");
    let mut applied: BTreeSet<&str> = commands
        .split("-f $here/")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    for entry in fs::read_dir(example()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".yaml") || applied.remove(name.as_str()),
            "{name} is not applied"
        );
    }
    assert!(applied.is_empty(), "{applied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_readme_lead_to_pages_and_away() {
    let kubectl = Binaries::find().or_fail().folder().to_owned();
    if !kubectl.join("kubectl").is_file() {
        return mcr_testkit::e2e::skipped(
            "kcp-apiexport",
            "there is no kubectl beside the control-plane binaries",
        );
    }
    let server = Kcp::builder().serve().await.or_fail();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".kcp")).unwrap();
    fs::write(
        folder.path().join(".kcp/admin.kubeconfig"),
        server.kubeconfig("root"),
    )
    .unwrap();
    std::os::unix::fs::symlink(env!("CARGO_MANIFEST_DIR"), folder.path().join("examples")).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([kubectl].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let blocks = blocks();
    let run = async |block: &str| {
        let mut shell = Command::new("sh");
        shell
            // One block after the other in one terminal: each sees the variables of those before.
            .args([
                "-euc",
                &format!("set -a; [ ! -f env ] || . ./env\n{block}\nexport -p >env"),
            ])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("KUBECACHEDIR", folder.path().join("cache"));
        let output = tokio::task::spawn_blocking(move || shell.output())
            .await
            .unwrap()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{block}\n{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let [variables, workspaces, api, consumers, kubeconfig, look, end] = blocks.as_slice() else {
        panic!("the README has other steps: {blocks:#?}")
    };
    run(variables).await;
    run(workspaces).await;
    run(api).await;
    // The part of kcp that issues tokens.
    let sites = server.kcp().workspace("root:sites").unwrap();
    server.kcp().set_user("least", controller(&sites));
    let mut secret = sites.get("secrets", "default/sites-controller-token").unwrap();
    secret["data"] = json!({"token": "bGVhc3Q="});
    sites.update(secret).or_fail();
    run(consumers).await;
    run(kubeconfig).await;
    let pages = folder.path().join(".kcp/pages");
    let hub = folder.path().join(".kcp/controller.kubeconfig");
    let args = [
        "--hub-kubeconfig",
        hub.to_str().unwrap(),
        "--folder",
        pages.to_str().unwrap(),
    ];
    let program = Program::start("kcp-apiexport", args);
    let said = |workspace: &'static str, event: &'static str| {
        move |line: &Value| line["workspace"] == workspace && line["event"] == event
    };
    program.line("the first page", said("root:team-a", "published"));
    program.line("the second page", said("root:team-b", "published"));
    let shown = run(look).await;
    assert_eq!(shown.matches("<h1>The shop</h1>").count(), 2, "{shown}");
    assert_eq!(
        shown.matches("Published").count(),
        3,
        "two Sites and one event: {shown}"
    );
    let mark = program.mark();
    run(end).await;
    program.after(mark, "the change", said("root:team-a", "published"));
    for workspace in ["root:team-a", "root:team-b"] {
        program.after(mark, "the end", said(workspace, "removed"));
    }
    let left = fs::read_dir(&pages)
        .unwrap()
        .flat_map(|of| fs::read_dir(of.unwrap().path().join("default")).unwrap());
    assert_eq!(left.count(), 0);
    program.interrupt();
}
