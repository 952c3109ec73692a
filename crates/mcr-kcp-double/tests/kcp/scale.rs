//! How much the double bears.

use mcr_kcp_double::Kcp;
use serde_json::json;

use crate::world::{WIDGETS, export, get, schema, widget};

/// How many bound workspaces; `MCR_KCP_WORKSPACES` asks for others, such as 10000.
fn count() -> usize {
    let asked = std::env::var("MCR_KCP_WORKSPACES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(500)
}

#[tokio::test]
async fn many_bound_workspaces_with_an_object_each_are_made_quickly() {
    let begin = std::time::Instant::now();
    let kcp = Kcp::builder().shards(2).managed_fields(false).build();
    let provider = kcp.create_workspace("root:provider").unwrap();
    provider.create(schema("v1")).unwrap();
    provider.create(export(json!([]))).unwrap();
    for number in 0..count() {
        let shard = if number % 2 == 0 { "root" } else { "shard-1" };
        let workspace = kcp
            .create_workspace_on(&format!("root:w{number}"), shard)
            .unwrap();
        let binding = json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": { "name": "widgets" },
            "spec": { "reference": { "export": { "path": "root:provider", "name": "widgets" } } },
        });
        workspace.create(binding).unwrap();
        workspace.create(widget("w")).unwrap();
    }
    println!("{} workspaces in {:?}", count(), begin.elapsed());
    let slice = provider
        .get("apiexportendpointslices.apis.kcp.io", "widgets")
        .unwrap();
    let mut seen = 0;
    for endpoint in slice["status"]["endpoints"].as_array().unwrap() {
        let url = format!("{}/clusters/*", endpoint["url"].as_str().unwrap());
        let list = get(&kcp.client_at(&url, kcp.admin_token()).unwrap(), WIDGETS).await;
        seen += list.json["items"].as_array().unwrap().len();
    }
    assert_eq!(seen, count());
}
