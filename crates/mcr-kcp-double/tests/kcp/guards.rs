//! Rules of the double that no other test would miss.

use mcr_kcp_double::{Kcp, KcpUser, KcpWorkspace};
use mcr_testkit::sim::SimRule;
use serde_json::json;

use crate::world::{WIDGETS, Workspace, binding, export, get, schema};

/// A provider with the export `widgets`, a consumer, and the URL of the export's virtual workspace.
fn exported(kcp: &Kcp, schema: serde_json::Value) -> (KcpWorkspace, KcpWorkspace, String) {
    let provider = kcp.create_workspace("root:provider").unwrap();
    provider.create(schema).unwrap();
    provider.create(export(json!([]))).unwrap();
    let consumer = kcp.create_workspace("root:consumer").unwrap();
    let at = Workspace {
        id: provider.id().to_owned(),
        path: provider.path().to_owned(),
        client: kcp.client("root"),
    };
    consumer.create(binding(&at, json!([]))).unwrap();
    let slice = provider.get("apiexportendpointslices.apis.kcp.io", "widgets");
    let url = slice.unwrap()["status"]["endpoints"][0]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    (provider, consumer, url)
}

/// Without a rule in a workspace not even its discovery is served.
#[tokio::test]
async fn a_user_without_a_rule_does_not_enter_a_workspace() {
    let kcp = Kcp::new();
    let (provider, consumer, _) = exported(&kcp, schema("v1"));
    let reads = SimRule::new(["apis.kcp.io"], ["apiexportendpointslices"], ["get"]);
    kcp.set_user("token", KcpUser::new("user").rule(provider.id(), reads));
    let at = |workspace: &KcpWorkspace| kcp.client_with_token(workspace.path(), "token");
    assert_eq!(get(&at(&provider), "/api").await.code, 200);
    let refused = get(&at(&consumer), "/api").await;
    assert_eq!(refused.code, 403);
    assert!(
        refused.text.contains("workspace access not permitted"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn the_content_of_an_export_needs_the_right_to_it_by_its_name() {
    let kcp = Kcp::new();
    let (provider, consumer, url) = exported(&kcp, schema("v1"));
    let content = |name: &str| SimRule::new(["apis.kcp.io"], ["apiexports/content"], ["*"]).names([name]);
    let targets = ["*", consumer.id()];
    for (rule, code) in [(content("other"), 403), (content("widgets"), 200)] {
        kcp.set_user("token", KcpUser::new("user").rule(provider.id(), rule));
        for target in targets {
            let client = kcp
                .client_at(&format!("{url}/clusters/{target}"), "token")
                .unwrap();
            assert_eq!(get(&client, WIDGETS).await.code, code, "{target}");
        }
    }
    // A rule in the consumer's workspace does not count.
    kcp.set_user(
        "token",
        KcpUser::new("user").rule(consumer.id(), content("widgets")),
    );
    let client = kcp.client_at(&format!("{url}/clusters/*"), "token").unwrap();
    let refused = get(&client, WIDGETS).await;
    assert_eq!(refused.code, 403);
    assert!(refused.text.contains("apiexports/content"), "{}", refused.text);
}
