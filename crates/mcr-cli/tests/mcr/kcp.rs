//! `mcr clusters` and `mcr doctor` with the provider `kcp`, on a double of kcp.

use std::time::Duration;

use mcr_kcp_double::{Kcp, KcpBuilder, KcpDelays, KcpServer, KcpUser, KcpWorkspace};
use mcr_testkit::{sim::SimRule, waiting::OrFail};
use serde_json::json;

use crate::harness::User;

/// A kcp with the workspace `root:provider`, which exports widgets and claims ConfigMaps.
async fn kcp(builder: KcpBuilder) -> KcpServer {
    let server = builder.serve().await.or_fail();
    let provider = server.kcp().create_workspace("root:provider").or_fail();
    for object in [
        json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": "v1.widgets.example.io"},
            "spec": {
                "group": "example.io", "scope": "Namespaced",
                "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object"}}],
            },
        }),
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
            "spec": {
                "resources": [{"name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io"}],
                "permissionClaims": [{"group": "", "resource": "configmaps", "verbs": ["*"]}],
            },
        }),
    ] {
        provider.create(object).or_fail();
    }
    server
}

fn consumer(server: &KcpServer, name: &str, shard: &str, claim: &str) -> KcpWorkspace {
    let workspace = server
        .kcp()
        .create_workspace_on(&format!("root:{name}"), shard)
        .or_fail();
    workspace
        .create(json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {
                "reference": {"export": {"path": "root:provider", "name": "widgets"}},
                "permissionClaims": [{
                    "group": "", "resource": "configmaps", "verbs": ["*"], "selector": {"matchAll": true}, "state": claim,
                }],
            },
        }))
        .or_fail();
    workspace
}

const OF_SLICE: &str = "--provider kcp --slice widgets --timeout 60s";
const DOCTOR: &str = "doctor -o json --provider kcp --slice widgets --timeout 60s";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspaces_are_clusters_and_the_doctor_checks_slice_endpoints_bindings_and_claims() {
    let server = kcp(Kcp::builder().shards(2)).await;
    let token = server.kcp().admin_token();
    let (a, b) = (
        consumer(&server, "a", "root", "Accepted"),
        consumer(&server, "b", "shard-1", "Rejected"),
    );
    let user = User::with([server.kubeconfig("root:provider")]).traced();
    let by_export = "clusters --provider kcp --export widgets --timeout 60s --name-prefix w+ --readiness permission-claims-applied";
    let (shown, only_b, text_of, by_path) = futures::join!(
        user.run(by_export),
        user.run(format!("{by_export} root:b")),
        user.run(DOCTOR),
        user.run(format!("{DOCTOR} root:b")),
    );
    for output in [&shown, &only_b, &text_of, &by_path] {
        assert!(
            !output.out.contains(token) && !output.err.contains(token),
            "{output:?}"
        );
    }
    let shown = shown.ended(0);
    for workspace in [&a, &b] {
        let name = format!("w+{}", workspace.id());
        let line = shown.out.lines().find(|line| line.starts_with(&name));
        let line = line.unwrap_or_else(|| panic!("{}", shown.out));
        assert!(
            line.contains("Ready") && line.contains(workspace.path()),
            "{line}"
        );
    }
    // A path on the command line is as good as a name.
    let only_b = only_b.ended(0);
    assert!(
        only_b.out.contains(b.id()) && !only_b.out.contains(a.id()),
        "{}",
        only_b.out
    );

    let text_of = text_of.ended(0);
    let front = server.kcp().url(b.id());
    text_of.finds(&format!(
        "| provider   | ok      | 2 clusters |
         | hub        | ok      | /clusters/root:provider; asked as |
         | connection | ok      | workspace https://127.0.0.1: |
         | rights     | ok      | may list, watch apiexportendpointslices.apis.kcp.io |
         | rights     | ok      | may list, watch apiexports.apis.kcp.io/content of APIExport widgets |
         | slice      | ok      | serves APIExport widgets of root:provider at 2 endpoints |
         | tls        | ok      | endpoint 127.0.0.1: the server's certificate is signed by a trusted authority |
         | bindings   | ok      | : 1 APIBinding: 1 ready |
         | claims     | warning | the claim on configmaps is not accepted by 1 of 2 consumers: root:b ( | \
             kubectl --server {front} describe apibindings.apis.kcp.io widgets",
    ));
    for shard in server.kcp().shards() {
        let url = format!("{}/services/apiexport/", shard.url());
        text_of.finds(&format!(
            "| connection | ok | endpoint {url} |\n| bindings | ok | {url} |"
        ));
    }
    assert_eq!(
        (&text_of.json()["problems"], &text_of.json()["warnings"]),
        (&json!(0), &json!(1)),
        "{}",
        text_of.out
    );
    let state = text_of.found(a.id(), "state");
    assert_eq!((&*state.0, &*state.1), ("ok", "Ready; workspace root:a"));

    let (level, message, advice) = by_path.ended(1).found("root:b", "name");
    assert!(
        level == "problem" && message.contains(b.id()) && advice.ends_with(b.id()),
        "{message}: {advice}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_consumer_is_normal_and_a_binding_that_is_not_ready_suspends_its_workspace() {
    let delays = KcpDelays {
        claims: Duration::from_secs(3600),
        ..KcpDelays::default()
    };
    let server = kcp(Kcp::builder().delays(delays)).await;
    let user = User::with([server.kubeconfig("root:provider")]);
    let none = user.run(DOCTOR).await.ended(0);
    none.finds(
        "| provider | warning | 0 clusters | add an APIBinding for APIExport widgets
         | slice    | ok      | it has no endpoints, which is normal |",
    );

    let a = consumer(&server, "a", "root", "Accepted");
    let wait = "--readiness permission-claims-applied";
    let (shown, text_of) = futures::join!(
        user.run(format!("clusters {OF_SLICE} {wait}")),
        user.run(format!("{DOCTOR} {wait}"))
    );
    shown
        .ended(0)
        .prints("Suspended")
        .prints("condition PermissionClaimsApplied");
    let text_of = text_of.ended(0);
    let (level, message, advice) = text_of.found(a.id(), "state");
    assert!(
        level == "warning" && message.contains("PermissionClaimsApplied"),
        "{message}"
    );
    let describe = format!(
        "--server {} describe apibindings.apis.kcp.io widgets",
        server.kcp().url(a.id())
    );
    assert!(advice.contains(&describe), "{advice}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_slice_or_right_and_a_shard_that_is_down_have_their_own_findings() {
    let server = kcp(Kcp::builder().shards(2)).await;
    let provider = server.kcp().workspace("root:provider").unwrap();
    for shard in ["root", "shard-1"] {
        consumer(&server, shard, shard, "Accepted");
    }
    let slice = provider
        .get("apiexportendpointslices.apis.kcp.io", "widgets")
        .unwrap();
    let endpoint = slice["status"]["endpoints"][0]["url"].as_str().unwrap();
    let right = server.kubeconfig("root:provider");
    let elsewhere = right.replace(&server.kcp().url("root:provider"), endpoint);
    let reads = SimRule::new(["apis.kcp.io"], ["apiexportendpointslices"], ["list", "watch"]);
    let reader = KcpUser::new("robot").rule(provider.id(), reads.names(["widgets"]));
    server.kcp().set_user("reader", reader);
    let reader = server.kubeconfig_with_token("root:provider", "reader");
    let expired = right.replace("token: ", "token: not-");
    let nowhere = right.replace("clusters/root:provider", "clusters/root:nowhere");
    let users = [right, elsewhere, reader, expired, nowhere].map(|kubeconfig| User::with([kubeconfig]));
    server.stop_shard("shard-1");
    let (down, wrong, nameless, elsewhere, reader, expired, nowhere) = futures::join!(
        users[0].run(DOCTOR),
        users[0].run(format!("{DOCTOR} --name-prefix a").replace("widgets", "wrong")),
        users[0].run("doctor --provider kcp -o json"),
        users[1].run(DOCTOR),
        users[2].run(DOCTOR),
        users[3].run(DOCTOR),
        users[4].run(DOCTOR),
    );
    let endpoint = server.kcp().shard("shard-1").unwrap().url().to_owned();
    let down = down.ended(1);
    down.finds(&format!("| connection | problem | endpoint {endpoint} |"));
    down.of_provider("provider", "1 cluster");
    down.of_provider("bindings", ": 1 APIBinding: 1 ready");
    wrong.ended(1).finds(
        "| provider | problem | APIExportEndpointSlice wrong does not exist | get apiexportendpointslices.apis.kcp.io",
    );
    nameless.ended(1).of_provider("provider", "--slice");
    let elsewhere = elsewhere.ended(1);
    elsewhere.finds("| provider | problem | is a virtual workspace | --hub-context");
    assert_eq!(elsewhere.json()["problems"], 1, "{}", elsewhere.out);
    reader.ended(1).finds(
        "| rights | problem | robot may not list, watch apiexports.apis.kcp.io/content | \
         --resource=apiexports.apis.kcp.io/content --resource-name=widgets",
    );
    expired.ended(1).of_provider("credentials", "401");
    let nowhere = nowhere.ended(1);
    nowhere.finds("| hub | problem | there is no workspace at | correct the workspace");
}

/// A kcp of two shards with the WorkspaceType `managed` in `root:provider`.
async fn kcp_with_type() -> KcpServer {
    let server = kcp(Kcp::builder().shards(2)).await;
    let provider = server.kcp().workspace("root:provider").unwrap();
    provider
        .create(json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "managed"},
            "spec": {"initializer": true, "terminator": true},
        }))
        .or_fail();
    server
}

/// A workspace of the type, which waits for its initializer.
fn waiting(server: &KcpServer, name: &str, shard: &str) -> KcpWorkspace {
    let root = server.kcp().workspace("root").unwrap();
    root.create(json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {
            "type": {"name": "managed", "path": "root:provider"},
            "location": {"selector": {"matchLabels": {"name": shard}}},
        },
    }))
    .or_fail();
    server.kcp().workspace(&format!("root:{name}")).unwrap()
}

const OF_TYPE: &str = "--workspace-type managed --timeout 60s --provider";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspaces_that_wait_are_clusters_and_the_doctor_checks_the_type_and_its_endpoints() {
    let server = kcp_with_type().await;
    let (a, b) = (waiting(&server, "a", "root"), waiting(&server, "b", "shard-1"));
    server.kcp().delete_workspace("root:b").or_fail();
    let user = User::with([server.kubeconfig("root:provider")]);
    let (shown, starts, ends) = futures::join!(
        user.run(format!("clusters {OF_TYPE} kcp-initializing,kcp-terminating")),
        user.run(format!("doctor -o json {OF_TYPE} kcp-initializing")),
        user.run(format!("doctor -o json {OF_TYPE} kcp-terminating")),
    );
    let shown = shown.ended(0);
    for (provider, workspace) in [("kcp-initializing", &a), ("kcp-terminating", &b)] {
        let name = format!("{provider}#{}", workspace.id());
        let line = shown.out.lines().find(|line| line.starts_with(&name));
        let line = line.unwrap_or_else(|| panic!("{}", shown.out));
        assert!(
            line.contains("Ready") && line.contains(workspace.path()),
            "{line}"
        );
    }
    for (text_of, waits, verb, word, state, shard) in [
        (starts, &a, "initialize", "initializer", "Initializing", "root"),
        (ends, &b, "terminate", "terminator", "being deleted", "shard-1"),
    ] {
        let text_of = text_of.ended(0);
        text_of.finds(&format!(
            "| provider | ok | 1 cluster |
             | hub      | ok | /clusters/root:provider; asked as |
             | rights   | ok | may list, watch workspacetypes.tenancy.kcp.io |
             | rights   | ok | may {verb} workspacetypes.tenancy.kcp.io with the name managed |
             | type     | ok | WorkspaceType managed has 2 endpoints for its {word} |"
        ));
        for shard in server.kcp().shards() {
            text_of.of_provider("connection", &format!("endpoint {}/services/", shard.url()));
        }
        let url = server.kcp().shard(shard).unwrap().url().to_owned();
        let found = text_of.of_provider("workspaces", &format!(": 1 LogicalCluster: 1 {state}"));
        assert!(found["message"].as_str().unwrap().starts_with(&url), "{found}");
        assert_eq!(
            (&text_of.json()["problems"], &text_of.json()["warnings"]),
            (&json!(0), &json!(0)),
            "{}",
            text_of.out
        );
        let state = text_of.found(waits.id(), "state");
        assert_eq!(state.1, format!("Ready; workspace {}", waits.path()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_type_or_right_has_its_own_finding_and_no_workspace_that_waits_is_normal() {
    let server = kcp_with_type().await;
    let provider = server.kcp().workspace("root:provider").unwrap();
    let reads = SimRule::new(["tenancy.kcp.io"], ["workspacetypes"], ["list", "watch"]);
    let reader = KcpUser::new("robot").rule(provider.id(), reads);
    server.kcp().set_user("reader", reader);
    let users = [
        server.kubeconfig("root:provider"),
        server.kubeconfig_with_token("root:provider", "reader"),
    ]
    .map(|kubeconfig| User::with([kubeconfig]));
    let doctor = format!("doctor -o json {OF_TYPE}");
    let (none, wrong, nameless, reader) = futures::join!(
        users[0].run(format!("{doctor} kcp-initializing")),
        users[0].run(format!("{doctor} kcp-terminating").replace("managed", "wrong")),
        users[0].run("doctor -o json --provider kcp-initializing"),
        users[1].run(format!("{doctor} kcp-initializing")),
    );
    let none = none.ended(0);
    assert_eq!(none.of_provider("provider", "0 clusters")["result"], "ok");
    wrong.ended(1).finds(
        "| provider | problem | WorkspaceType wrong does not exist | get workspacetypes.tenancy.kcp.io",
    );
    nameless.ended(1).of_provider("provider", "--workspace-type");
    reader.ended(1).finds(
        "| rights | problem | robot may not initialize workspacetypes.tenancy.kcp.io | \
         create clusterrole mcr-workspacetypes-initialize --verb=initialize \
         --resource=workspacetypes.tenancy.kcp.io --resource-name=managed",
    );
}
