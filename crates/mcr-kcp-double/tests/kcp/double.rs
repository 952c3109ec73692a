//! Moves, of which only the double knows each step.

use std::time::Duration;

use mcr_kcp_double::{Kcp, KcpDelays, KcpMove, KcpWorkspace};

use crate::world::{BINDINGS, WIDGETS, Workspace, condition, export, get, names, schema, watch, widget};

const SLICES: &str = "apiexportendpointslices.apis.kcp.io";

/// A provider with the export `widgets`, which claims config maps.
fn provider(kcp: &Kcp) -> KcpWorkspace {
    let provider = kcp.create_workspace("root:provider").unwrap();
    provider.create(schema("v1")).unwrap();
    provider.create(export(crate::world::claim().0)).unwrap();
    provider
}

fn consumer(kcp: &Kcp, provider: &KcpWorkspace, name: &str, shard: &str) -> KcpWorkspace {
    let consumer = kcp.create_workspace_on(&format!("root:{name}"), shard).unwrap();
    let at = Workspace {
        id: provider.id().to_owned(),
        path: provider.path().to_owned(),
        client: kcp.client("root"),
    };
    consumer
        .create(crate::world::binding(&at, crate::world::claim().1))
        .unwrap();
    consumer
}

fn urls(provider: &KcpWorkspace) -> Vec<String> {
    let slice = provider.get(SLICES, "widgets").unwrap();
    let endpoints = slice["status"]["endpoints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    endpoints
        .iter()
        .map(|endpoint| endpoint["url"].as_str().unwrap().to_owned())
        .collect()
}

fn all(kcp: &Kcp, url: &str) -> kube::Client {
    kcp.client_at(&format!("{url}/clusters/*"), kcp.admin_token())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_moved_workspace_arrives_with_its_bindings_first_and_leaves_when_it_is_complete() {
    let delays = KcpDelays {
        copy: Duration::from_secs(1),
        ..KcpDelays::default()
    };
    for order in [KcpMove::NewFirst, KcpMove::OldFirst] {
        let kcp = Kcp::builder().shards(2).delays(delays).build();
        let provider = provider(&kcp);
        let one = consumer(&kcp, &provider, "one", "root");
        one.create(widget("w")).unwrap();
        one.create(crate::world::config_map("m")).unwrap();
        let uid = one.get("widgets.example.io", "default/w").unwrap()["metadata"]["uid"].clone();
        let old = all(&kcp, &urls(&provider)[0]);
        wait_for(&old, "/api/v1/configmaps", "m").await;
        let mut gone = watch(&old, &format!("{WIDGETS}?watch=true")).await;

        kcp.move_workspace(one.id(), "shard-1", order).unwrap();
        assert_eq!(one.shard().unwrap(), "shard-1");
        let url = format!(
            "{}/services/apiexport/{}/widgets",
            kcp.shard("shard-1").unwrap().url(),
            provider.id()
        );
        let both = usize::from(order == KcpMove::NewFirst);
        assert_eq!(urls(&provider).len(), 1 + both);
        let new = all(&kcp, &url);
        let arrived = get(&new, BINDINGS).await.json["items"][0].clone();
        assert_eq!(arrived["metadata"]["annotations"]["kcp.io/cluster"], one.id());
        assert_eq!(condition(&arrived, "PermissionClaimsApplied"), "True");
        // A list is complete, and lacks what has not been copied yet.
        let list = get(&new, WIDGETS).await;
        assert!(list.json["metadata"]["resourceVersion"].is_string());
        assert_eq!(names(&list).len(), 1 - both);
        assert_eq!(names(&get(&old, BINDINGS).await).len(), both);
        if order == KcpMove::NewFirst {
            assert_eq!(get(&kcp.client(one.path()), WIDGETS).await.code, 503);
        }

        let left = gone.find(|event| event["type"] == "DELETED").await;
        assert!(left["object"]["metadata"]["deletionTimestamp"].is_null());
        wait_for(&new, WIDGETS, "w").await;
        let list = get(&new, WIDGETS).await;
        assert_eq!(list.json["items"][0]["metadata"]["uid"], uid);
        assert_eq!(names(&get(&old, BINDINGS).await).len(), 0);
        assert_eq!(names(&get(&new, "/api/v1/configmaps").await), ["m"]);
        assert_eq!(urls(&provider), [url]);
        // By path and id the workspace is where it was.
        assert_eq!(names(&get(&kcp.client(one.path()), WIDGETS).await), ["w"]);
    }
}

async fn wait_for(client: &kube::Client, path: &str, name: &str) {
    crate::world::until(client, path, |list| names(list).contains(&name.to_owned())).await;
}
