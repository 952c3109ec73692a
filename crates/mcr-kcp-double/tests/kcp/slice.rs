use serde_json::json;

use crate::world::{BINDINGS, SLICE, bind, get, on_shard, until, worlds};

const NO_URL: fn(&crate::world::Answer) -> bool = |answer| answer.json["status"]["endpoints"].is_null();

#[tokio::test]
async fn an_export_has_a_slice_and_an_unused_one_has_no_endpoints() {
    for world in worlds(1).await {
        let provider = world.provider("unused", json!([])).await;
        let slice = until(&provider.client, SLICE, |answer| answer.code == 200).await;
        assert_eq!(slice.json["spec"]["export"]["name"], "widgets");
        assert_eq!(slice.json["metadata"]["ownerReferences"][0]["kind"], "APIExport");
        assert!(NO_URL(&slice), "{slice:?}");
    }
}

#[tokio::test]
async fn each_shard_has_an_endpoint_for_its_own_workspaces() {
    for world in worlds(2).await {
        if !world.has_two_shards().await {
            continue;
        }
        let provider = world.provider("shards", json!([])).await;
        let mut ids = Vec::new();
        for shard in ["root", "shard-1"] {
            let consumer = world
                .workspace_with(&format!("on-{shard}"), on_shard(shard))
                .await;
            bind(&consumer, &provider, json!([])).await;
            ids.push(consumer.id);
        }
        let two = |answer: &crate::world::Answer| {
            answer.json["status"]["endpoints"]
                .as_array()
                .is_some_and(|urls| urls.len() == 2)
        };
        let slice = until(&provider.client, SLICE, two).await;
        let urls = slice.json["status"]["endpoints"].as_array().unwrap().clone();
        let mut seen = Vec::new();
        for url in urls {
            let url = url["url"].as_str().unwrap();
            let list = get(&world.at(&format!("{url}/clusters/*")), BINDINGS).await;
            let items = list.json["items"].as_array().unwrap().clone();
            assert_eq!(items.len(), 1, "{list:?}");
            let cluster = items[0]["metadata"]["annotations"]["kcp.io/cluster"]
                .as_str()
                .unwrap()
                .to_owned();
            // The other shard refuses the workspace.
            let other = ids.iter().find(|id| **id != cluster).unwrap();
            assert_eq!(
                get(&world.at(&format!("{url}/clusters/{other}")), BINDINGS)
                    .await
                    .code,
                403
            );
            seen.push(cluster);
        }
        seen.sort();
        ids.sort();
        assert_eq!(seen, ids);
    }
}
