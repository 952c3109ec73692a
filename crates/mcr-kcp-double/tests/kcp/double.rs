//! What only the double can do: faults, moves, delays and users without RBAC objects.

use std::time::Duration;

use mcr_kcp_double::{Kcp, KcpDelays, KcpMove, KcpWorkspace};
use serde_json::{Value, json};

use crate::world::{BINDINGS, WIDGETS, Workspace, condition, export, get, names, schema, watch, widget};

const BINDING_OBJECTS: &str = "apibindings.apis.kcp.io";
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

#[tokio::test]
async fn a_shard_has_one_version_for_all_its_workspaces() {
    let kcp = Kcp::builder().shards(2).build();
    let provider = provider(&kcp);
    let one = consumer(&kcp, &provider, "one", "root");
    let two = consumer(&kcp, &provider, "two", "root");
    consumer(&kcp, &provider, "three", "shard-1");
    let (root, other) = (kcp.shard("root").unwrap(), kcp.shard("shard-1").unwrap());
    let (before, of_other) = (root.resource_version(), other.resource_version());
    one.create(widget("a")).unwrap();
    two.create(widget("b")).unwrap();
    assert_eq!(root.resource_version(), before + 2);
    assert_eq!(other.resource_version(), of_other);
    let list = get(&all(&kcp, &urls(&provider)[0]), WIDGETS).await;
    assert_eq!(list.json["metadata"]["resourceVersion"], (before + 2).to_string());
}

#[tokio::test]
async fn an_expired_version_is_an_error_in_the_stream() {
    let kcp = Kcp::new();
    let provider = provider(&kcp);
    let one = consumer(&kcp, &provider, "one", "root");
    one.create(widget("a")).unwrap();
    let shard = kcp.shard("root").unwrap();
    shard.compact(shard.resource_version());
    one.create(widget("b")).unwrap();
    let path = format!("{WIDGETS}?watch=true&resourceVersion=1");
    let mut events = watch(&all(&kcp, &urls(&provider)[0]), &path).await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(events.next().await.is_none());
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

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_binding_take_the_configured_time() {
    let delays = KcpDelays {
        endpoint: Duration::from_secs(1),
        bind: Duration::from_secs(2),
        claims: Duration::from_secs(3),
        workspace: Duration::from_secs(4),
        ..KcpDelays::default()
    };
    let kcp = Kcp::builder().delays(delays).build();
    let provider = provider(&kcp);
    let one = consumer(&kcp, &provider, "one", "root");
    let at = async |seconds: u64| {
        tokio::time::sleep(Duration::from_millis(seconds * 1000)).await;
        let binding = one.get(BINDING_OBJECTS, "widgets").unwrap();
        let applied = condition(&binding, "PermissionClaimsApplied") == "True";
        (
            urls(&provider).len(),
            binding["status"]["phase"].as_str().unwrap().to_owned(),
            applied,
        )
    };
    // Half a second after each step.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(at(0).await, (0, "Binding".to_owned(), false));
    assert_eq!(at(1).await, (1, "Binding".to_owned(), false));
    assert_eq!(at(1).await, (1, "Bound".to_owned(), false));
    assert_eq!(at(3).await, (1, "Bound".to_owned(), true));
    let object = json!({ "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": "slow" } });
    kcp.workspace("root").unwrap().create(object).unwrap();
    assert!(kcp.workspace("root:slow").is_none());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(kcp.workspace("root:slow").is_some());
}

#[tokio::test]
async fn kcp_behind_tls_stops_and_restarts_at_the_same_addresses() {
    let server = Kcp::builder().shards(2).serve().await.unwrap();
    let kcp = server.kcp();
    let provider = provider(kcp);
    let one = consumer(kcp, &provider, "one", "shard-1");
    one.create(widget("w")).unwrap();
    let url = urls(&provider)[0].clone();
    let client = tls_client(&server, &format!("{url}/clusters/*")).await;
    assert_eq!(names(&get(&client, WIDGETS).await), ["w"]);
    let front = tls_client(&server, &kcp.url(one.path())).await;
    assert_eq!(names(&get(&front, WIDGETS).await), ["w"]);
    assert!(server.stop_shard("shard-1"));
    let request = http::Request::get(WIDGETS)
        .body(kube::client::Body::empty())
        .unwrap();
    assert!(client.send(request).await.is_err());
    assert_eq!(get(&front, WIDGETS).await.code, 502);
    assert!(server.start_shard("shard-1").await.unwrap());
    let client = tls_client(&server, &format!("{url}/clusters/*")).await;
    assert_eq!(names(&get(&client, WIDGETS).await), ["w"]);
    server.restart().await.unwrap();
    let front = tls_client(&server, &kcp.url(one.path())).await;
    assert_eq!(names(&get(&front, WIDGETS).await), ["w"]);
}

/// With the credentials of the server's kubeconfig, as a provider uses them for endpoints too.
async fn tls_client(server: &mcr_kcp_double::KcpServer, url: &str) -> kube::Client {
    let yaml = server.kubeconfig("root");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&yaml).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    config.cluster_url = url.parse().unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn the_same_name_in_two_exports_never_meets() {
    let kcp = Kcp::new();
    let first = provider(&kcp);
    let second = kcp.create_workspace("root:other").unwrap();
    second.create(schema("v1")).unwrap();
    second.create(export(json!([]))).unwrap();
    let one = consumer(&kcp, &first, "one", "root");
    let two = consumer(&kcp, &second, "two", "root");
    one.create(widget("w")).unwrap();
    two.create(widget("w")).unwrap();
    for (provider, consumer) in [(&first, &one), (&second, &two)] {
        let list = get(&all(&kcp, &urls(provider)[0]), WIDGETS).await;
        let clusters: Vec<&Value> = list.json["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["metadata"]["annotations"]["kcp.io/cluster"])
            .collect();
        assert_eq!(clusters, [consumer.id()]);
    }
    assert_eq!(
        names(&get(&all(&kcp, &urls(&first)[0]), BINDINGS).await),
        ["widgets"]
    );
}
