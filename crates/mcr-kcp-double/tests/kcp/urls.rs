use serde_json::json;

use crate::world::{config_map, create, get, merge, worlds};

#[tokio::test]
async fn a_workspace_is_served_by_path_and_by_id() {
    for world in worlds(1).await {
        let workspace = world.workspace("both").await;
        let by_id = world.at(&world.url(&workspace.id));
        let one = get(&by_id, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").await;
        let two = get(
            &workspace.client,
            "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
        )
        .await;
        assert_eq!(one.json["metadata"]["uid"], two.json["metadata"]["uid"]);
        let annotations = &one.json["metadata"]["annotations"];
        assert_eq!(annotations["kcp.io/path"], workspace.path);
        assert_eq!(annotations["kcp.io/cluster"], workspace.id);
    }
}

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
async fn an_unknown_path_is_a_403_at_a_front_proxy() {
    for world in worlds(2).await {
        if !world.has_two_shards().await {
            continue;
        }
        let nowhere = world.at(&world.url("root:nowhere-at-all"));
        let answer = get(&nowhere, "/api/v1/namespaces").await;
        assert_eq!(answer.code, 403, "{answer:?}");
        assert!(
            answer.text.contains("workspace access not permitted"),
            "{answer:?}"
        );
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

#[tokio::test]
async fn a_workspace_that_has_not_bound_the_export_is_a_403() {
    for world in worlds(1).await {
        let provider = world.provider("unbound", json!([])).await;
        let (_, url) = world.consumer("unbound-consumer", &provider, json!([])).await;
        let stranger = world.workspace("unbound-stranger").await;
        let client = world.at(&format!("{url}/clusters/{}", stranger.id));
        assert_eq!(get(&client, "/apis/example.io/v1/widgets").await.code, 403);
    }
}

#[tokio::test]
async fn the_admin_may_not_read_across_the_workspaces_of_a_shard() {
    for world in worlds(1).await {
        let client = world.at(&world.url("*"));
        assert_eq!(get(&client, "/api/v1/configmaps").await.code, 403);
    }
}

#[tokio::test]
async fn the_cluster_of_an_object_cannot_be_changed() {
    for world in worlds(1).await {
        let workspace = world.workspace("annotated").await;
        let path = "/api/v1/namespaces/default/configmaps";
        let mut forged = config_map("m");
        forged["metadata"]["annotations"] = json!({ "kcp.io/cluster": "root" });
        create(&workspace.client, path, &forged).await;
        let of = async || {
            let live = get(&workspace.client, &format!("{path}/m")).await;
            live.json["metadata"]["annotations"]["kcp.io/cluster"].clone()
        };
        assert_eq!(of().await, workspace.id);
        let none = json!({ "metadata": { "annotations": null } });
        merge(&workspace.client, &format!("{path}/m"), &none).await;
        assert_eq!(of().await, workspace.id);
    }
}
