//! A cluster that is a namespace answers as a cluster does that has only that namespace.

use kube::Client;
use mcr_provider_namespace::NamespaceMapping;
use mcr_testkit::control_plane::{ControlPlane, Etcd};
use serde_json::{Value, json};

use crate::harness::{Raw, ask, namespace};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PATCH: &str = "application/json-patch+json";

/// The requests to which both must give the same answers, in this order.
fn script() -> Vec<Raw> {
    let maps = "/api/v1/namespaces/default/configmaps";
    let missing = "/api/v1/namespaces/missing/configmaps";
    let map = |namespace: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}, "data": {"k": "v"}});
    let get = |uri: &str| Raw::new("GET", uri);
    let at = |path: &str, part: &str| format!("{path}{part}");
    let mut script = vec![
        get(maps),
        Raw::new("POST", maps).body(JSON, map(json!("default"))),
        Raw::new("POST", maps).body(JSON, map(json!("default"))),
        Raw::new("POST", maps).body(JSON, map(json!("missing"))),
        Raw::new("POST", maps).body(JSON, "{"),
        Raw::new("POST", maps).body(
            JSON,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        ),
        Raw::new("POST", maps).body(
            JSON,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A!"}}),
        ),
        get(&at(maps, "/a")),
        Raw::new("HEAD", at(maps, "/a")),
        get(&at(maps, "/b")),
        get(&at(maps, "/a/status")),
        get(maps),
        get("/api/v1/configmaps?fieldSelector=metadata.name%3Da"),
        get("/api/v1/configmaps/a"),
        get("/api/v1/unknowns"),
        get("/api/v2/configmaps"),
        get("/apis/no.group/v1/things"),
        get("/api/v1/namespaces/default/unknowns"),
        get("/api/v1/namespaces/default/nodes"),
        get(&at(maps, "?fieldSelector=metadata.namespace%3Ddefault")),
        get(&at(maps, "?fieldSelector=metadata.namespace!%3Ddefault")),
        get(&at(maps, "?fieldSelector=metadata.namespace%3Dmissing")),
        get(&at(maps, "?fieldSelector=nonsense")),
        get(&at(maps, "?fieldSelector=no.such.field%3D1")),
        get(&at(maps, "?labelSelector=a%3Ddefault")),
        get(&at(maps, "?limit=x")),
        Raw::new("PUT", at(maps, "/a")).body(JSON, map(json!("default"))),
        Raw::new("PUT", at(maps, "/a")).body(JSON, map(json!("missing"))),
        Raw::new("PUT", at(maps, "/b")).body(JSON, map(json!("default"))),
        Raw::new("PUT", at(maps, "/a")).body(JSON, map(json!(null))),
        Raw::new("PATCH", at(maps, "/a")).body(
            MERGE,
            json!({"metadata": {"namespace": "default"}, "data": {"x": "1"}}),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(
            STRATEGIC,
            json!({"metadata": {"namespace": "default"}, "data": {"x": "2"}}),
        ),
        Raw::new("PATCH", at(maps, "/a?fieldManager=m&force=true")).body(APPLY, map(json!("default"))),
        Raw::new("PATCH", at(maps, "/c?fieldManager=m")).body(
            APPLY,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(
            PATCH,
            json!([{"op": "test", "path": "/metadata/namespace", "value": "default"}]),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(
            PATCH,
            json!([{"op": "test", "path": "/metadata/namespace", "value": "missing"}]),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(
            PATCH,
            json!([{"op": "test", "path": "/metadata/namespace", "value": "island"}]),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(
            PATCH,
            json!([{"op": "replace", "path": "/metadata/namespace", "value": "default"}]),
        ),
        Raw::new("PATCH", at(maps, "/a")).body(PATCH, json!([{"op": "remove", "path": "/nowhere"}])),
        Raw::new("PATCH", at(maps, "/a")).body("text/plain", "x"),
        Raw::new("PATCH", at(maps, "/b")).body(MERGE, json!({})),
        Raw::new("POST", "/api/v1/configmaps").body(JSON, map(json!("default"))),
        Raw::new("DELETE", "/api/v1/configmaps"),
        get("/api/v1/namespaces/default"),
        get("/api/v1/namespaces/missing"),
        get("/api/v1/namespaces/missing/status"),
        get("/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault"),
        get("/api/v1/namespaces?fieldSelector=metadata.name%3Dmissing"),
    ];
    // In a namespace that does not exist, and in the one that has another name here.
    for missing in [
        missing,
        "/api/v1/namespaces/island/configmaps",
        "/apis/apps/v1/namespaces/missing/deployments",
    ] {
        script.extend([
            get(missing),
            get(&at(missing, "?watch=true&timeoutSeconds=1")),
            get(&at(missing, "?limit=1&fieldSelector=metadata.name%3Da")),
            get(&at(missing, "/a")),
            Raw::new("DELETE", at(missing, "/a")),
            Raw::new("DELETE", missing),
            Raw::new("PATCH", at(missing, "/a")).body(MERGE, json!({"data": {}})),
        ]);
    }
    script.extend([
        Raw::new("POST", missing).body(JSON, map(json!("missing"))),
        Raw::new("POST", missing).body(JSON, map(json!(null))),
        Raw::new("PUT", at(missing, "/a")).body(JSON, map(json!("missing"))),
        Raw::new("PATCH", at(missing, "/a?fieldManager=m")).body(APPLY, map(json!("missing"))),
        Raw::new("DELETE", at(maps, "/a")),
        Raw::new("DELETE", at(maps, "/a")),
        Raw::new("DELETE", maps),
        get(maps),
        get("/version"),
        get("/readyz"),
        get("/api"),
        get("/apis/apps/v1"),
    ]);
    script
}

fn metadata(object: &Value) -> Value {
    json!([object["metadata"]["name"], object["metadata"]["namespace"]])
}

/// The part of an answer that must be equal: without identities, versions, times and quoted names.
async fn essence(client: &Client, raw: &Raw) -> (u16, Value) {
    let Some(reply) = ask(client, raw).await else {
        return (0, Value::Null);
    };
    let body = reply.json();
    let mut essence = json!({});
    for field in [
        "kind",
        "apiVersion",
        "status",
        "reason",
        "data",
        "gitVersion",
        "resources",
    ] {
        essence[field] = body[field].clone();
    }
    if let Some(message) = body["message"].as_str() {
        essence["message"] = message.replace("island", "default").into();
    }
    for field in ["name", "group", "kind"] {
        essence["details"][field] = body["details"][field].clone();
    }
    essence["metadata"] = metadata(&body);
    essence["items"] = body["items"]
        .as_array()
        .map(|items| items.iter().map(metadata).collect::<Vec<_>>())
        .into();
    (reply.code.as_u16(), essence)
}

#[tokio::test]
async fn a_cluster_that_is_a_namespace_answers_as_one_that_is_none() {
    let etcd = Etcd::start().await.unwrap();
    let (host, real) = tokio::join!(
        ControlPlane::builder().etcd(&etcd).start(),
        ControlPlane::builder().etcd(&etcd).start()
    );
    let (host, real) = (host.unwrap(), real.unwrap());
    namespace(&host.client(), "island").await;
    // Nothing of these may be seen.
    namespace(&host.client(), "missing").await;
    for other in ["missing", "default"] {
        let secret = json!({"metadata": {"name": "a"}, "data": {"secret": other}});
        let maps = format!("/api/v1/namespaces/{other}/configmaps");
        assert_eq!(
            ask(&host.client(), &Raw::new("POST", maps).body(JSON, secret))
                .await
                .unwrap()
                .code,
            201
        );
    }
    let island = NamespaceMapping::new().client(&host.client(), "island").unwrap();
    let mut different = Vec::new();
    // A refusal by the mapping itself has a text of its own.
    let own_words = |raw: &Raw| raw.body == "{" || raw.uri.contains("no.group") || raw.body == "x";
    for raw in script() {
        let (here, there) = (essence(&island, &raw).await, essence(&real.client(), &raw).await);
        let alike = if own_words(&raw) {
            here.0 == there.0
        } else {
            here == there
        };
        if !alike {
            different.push(format!(
                "{} {} {}\n  here  {here:?}\n  there {there:?}",
                raw.method, raw.uri, raw.body
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
