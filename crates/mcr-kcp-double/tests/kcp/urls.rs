use serde_json::json;

use crate::world::{get, worlds};

#[tokio::test]
async fn an_unknown_path_is_a_404_about_a_workspace_and_an_unknown_id_a_403() {
    for world in worlds(1).await {
        let nobody = world.at(&world.url("2b5kz0w9m3nowhere"));
        let answer = get(&nobody, "/api/v1/namespaces").await;
        assert_eq!(answer.code, 403, "{answer:?}");
        if world.is_real() && world.has_two_shards().await {
            continue;
        }
        let nowhere = world.at(&world.url("root:nowhere-at-all"));
        let answer = get(&nowhere, "/api/v1/namespaces").await;
        assert_eq!(answer.code, 404, "{answer:?}");
        let details =
            json!({ "name": "root:nowhere-at-all", "group": "tenancy.kcp.io", "kind": "workspaces" });
        assert_eq!(answer.json["details"], details);
    }
}

#[tokio::test]
async fn a_virtual_workspace_wants_ids_and_clusters() {
    for world in worlds(1).await {
        let provider = world.provider("ids", json!([])).await;
        let (consumer, url) = world.consumer("ids-consumer", &provider, json!([])).await;
        let asks = |url: String| world.at(&url);
        // The path of the export's workspace in place of its id.
        let base = url.split("/services/").next().unwrap();
        let by_path = format!("{base}/services/apiexport/{}/widgets/clusters/*", provider.path);
        let answer = get(&asks(by_path), "/api").await;
        assert_eq!(answer.code, 500, "{answer:?}");
        assert!(answer.text.contains("API export not found"), "{answer:?}");
        // The path of a consumer in place of its id.
        let answer = get(&asks(format!("{url}/clusters/{}", consumer.path)), "/api").await;
        assert_eq!(answer.code, 403, "{answer:?}");
        assert!(
            answer.text.contains("not resolved to a valid virtual workspace"),
            "{answer:?}"
        );
        // No cluster at all.
        assert_eq!(get(&asks(url.clone()), "/api").await.code, 403);
        // The wildcard may be escaped.
        let answer = get(
            &asks(format!("{url}/clusters/%2A")),
            "/apis/example.io/v1/widgets",
        )
        .await;
        assert_eq!(answer.code, 200, "{answer:?}");
    }
}
