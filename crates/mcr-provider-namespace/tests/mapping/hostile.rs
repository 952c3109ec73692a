//! Whatever is asked in a cluster that is a namespace: nothing else of its host is read or touched.
//!
//! Random requests, most of them wrong in some way, against a real API server. Its audit log is the judge: it has every
//! request as the API server understood it.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use kube::Client;
use mcr_provider_namespace::NamespaceMapping;
use mcr_testkit::control_plane::{AuditEvent, ControlPlane};
use proptest::{
    prelude::*,
    sample::select,
    strategy::{BoxedStrategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::harness::{Raw, Reply, ask, crd, namespace, snapshot};

/// Requests of one round, between which the namespace is filled again.
const ROUND: usize = 250;
const ROUNDS: usize = 16;
const AT_ONCE: usize = 12;
/// Stands in every object of another namespace, and of none.
const CANARY: &str = "canary-of-others";
const OTHERS: [&str; 4] = ["zoo", "jungle", "default", "kube-system"];
const USER: &str = "who-lives-on-an-island";

/// One of each kind that is written to, by path below a namespace.
fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    vec![
        ("api/v1", "configmaps", json!({"data": {"k": "v"}})),
        ("api/v1", "secrets", json!({"stringData": {"k": "v"}})),
        (
            "api/v1",
            "services",
            json!({"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
        ),
        ("api/v1", "serviceaccounts", json!({})),
        (
            "api/v1",
            "pods",
            json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "apis/apps/v1",
            "deployments",
            json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
        ("apis/rbac.authorization.k8s.io/v1", "roles", json!({"rules": []})),
        (
            "apis/coordination.k8s.io/v1",
            "leases",
            json!({"spec": {"holderIdentity": "x"}}),
        ),
        (
            "apis/example.com/v1",
            "widgets",
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"replicas": 1}, "status": {"replicas": 1}}),
        ),
    ]
}

/// Writes the objects `a` and `b` of each kind, where they are not there.
async fn fill(client: &Client, namespace: &str, mark: &str) {
    let writes = objects().into_iter().flat_map(|(root, plural, object)| {
        ["a", "b"].map(|name| {
            let mut object = object.clone();
            object["metadata"] = json!({"name": name, "labels": {"a": "b"}, "annotations": {"mark": mark}});
            Raw::new("POST", format!("/{root}/namespaces/{namespace}/{plural}"))
                .body("application/json", object)
        })
    });
    let events = ["a", "b"].map(|name| {
        let event = json!({"metadata": {"name": name, "annotations": {"mark": mark}}, "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": namespace}});
        Raw::new("POST", format!("/api/v1/namespaces/{namespace}/events")).body("application/json", event)
    });
    for raw in writes.chain(events) {
        let reply = ask(client, &raw).await.unwrap();
        assert!(
            [201, 409].contains(&reply.code.as_u16()),
            "{raw:?}: {}",
            reply.text
        );
    }
}

fn namespaces() -> BoxedStrategy<&'static str> {
    prop_oneof![
        8 => Just("default"),
        6 => select(&["island", "zoo", "jungle", "kube-system", "missing"][..]),
        1 => select(&["", "*", "-", ".", "..", "%2e%2e", "zoo%2F", "default%2f..%2fzoo", "../zoo", "default/../zoo", "%64efault",
            "%7aoo", "Default", "zoo;default", "default,zoo", "zoo%00", "default%20", "_all", "default/status", "zoo/finalize"][..]),
    ]
    .boxed()
}

fn kinds() -> BoxedStrategy<(&'static str, &'static str)> {
    let namespaced = [
        ("api/v1", "configmaps"),
        ("api/v1", "configmaps"),
        ("api/v1", "configmaps"),
        ("api/v1", "secrets"),
        ("api/v1", "services"),
        ("api/v1", "serviceaccounts"),
        ("api/v1", "pods"),
        ("api/v1", "events"),
        ("apis/events.k8s.io/v1", "events"),
        ("apis/apps/v1", "deployments"),
        ("apis/rbac.authorization.k8s.io/v1", "roles"),
        ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
        ("apis/coordination.k8s.io/v1", "leases"),
        ("apis/example.com/v1", "widgets"),
        ("apis/authorization.k8s.io/v1", "localsubjectaccessreviews"),
        ("api/v1", "bindings"),
    ];
    let others = [
        ("api/v1", "namespaces"),
        ("api/v1", "nodes"),
        ("api/v1", "persistentvolumes"),
        ("api/v1", "componentstatuses"),
        ("apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        ("apis/example.com/v1", "gadgets"),
        ("apis/example.com/v1", "namespaces"),
        ("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"),
        ("apis/authentication.k8s.io/v1", "tokenreviews"),
        ("apis/storage.k8s.io/v1", "storageclasses"),
        ("api/v1", "unknowns"),
        ("api/v1/watch", "configmaps"),
        ("api/v1/proxy", "services"),
        ("apis/apps/v1/watch", "deployments"),
        ("apis/apps/v1beta9", "deployments"),
        ("apis", "v1"),
        ("api//v1", "configmaps"),
        ("api/v1/..", "v1/secrets"),
    ];
    prop_oneof![3 => select(namespaced.to_vec()), 1 => select(others.to_vec())].boxed()
}

fn names() -> BoxedStrategy<&'static str> {
    prop_oneof![
        10 => select(&["a", "b", "c"][..]),
        1 => select(&["..", ".", "%2e%2e", "a%2Fstatus", "..%2F..%2Fzoo%2Fconfigmaps%2Fa", "../../zoo/configmaps/a", "a%00", "%61", "a/",
            "/a", "a?x=/../", "default", "zoo", "island", "a;b", "a:b"][..]),
    ]
    .boxed()
}

fn subresources() -> BoxedStrategy<&'static str> {
    prop_oneof![
        8 => Just(""),
        4 => select(&["/status", "/scale"][..]),
        3 => select(&["/binding", "/eviction", "/ephemeralcontainers", "/resize", "/token", "/log", "/exec?command=x", "/attach",
            "/portforward?ports=1", "/proxy", "/proxy/x", "/proxy/../../../../zoo/configmaps/a", "/proxy/%2e%2e/x", "/finalize",
            "/unknown", "/..", "/status/..", "/%73tatus"][..]),
    ]
    .boxed()
}

/// Paths as they should be, and as they should not.
fn paths() -> BoxedStrategy<String> {
    let path = (namespaces(), kinds(), names(), subresources(), 0..20_u8).prop_map(
        |(namespace, (root, plural), name, sub, form)| match form {
            0..=1 => format!("/{root}/{plural}"),
            2 => format!("/{root}/{plural}/{name}{sub}"),
            3 => format!("/api/v1/namespaces/{namespace}{sub}"),
            4 => "/api/v1/namespaces".to_owned(),
            5..=8 => format!("/{root}/namespaces/{namespace}/{plural}"),
            9 => format!("/{root}/namespaces/{namespace}/{plural}/../../zoo/{plural}/{name}"),
            _ => format!("/{root}/namespaces/{namespace}/{plural}/{name}{sub}"),
        },
    );
    let odd = select(vec![
        "/metrics",
        "/logs/",
        "/openid/v1/jwks",
        "/version",
        "/api",
        "/apis/apps",
        "/openapi/v2/../../api/v1/secrets",
        "*",
        "/",
        "/healthz/../api/v1/namespaces/zoo/configmaps",
        "//api/v1/namespaces/zoo/configmaps/a",
        "/configz",
        "/debug/pprof/",
        "https://127.0.0.1/api/v1/namespaces/zoo/configmaps/a",
        "http://zoo/api/v1/secrets",
    ]);
    let mutated = (
        path.clone(),
        any::<prop::sample::Index>(),
        select(vec![
            "/", "%2f", "..", "/..", "%2e%2e/", "//", "%", "\u{0}", ";", "#", "%c0%af",
        ]),
    )
        .prop_map(|(mut path, at, piece)| {
            let places: Vec<usize> = path.char_indices().map(|(at, _)| at).collect();
            path.insert_str(places[at.index(places.len())], piece);
            path
        });
    let escaped = (path.clone(), any::<prop::sample::Index>()).prop_map(|(path, at)| {
        let at = at.index(path.len());
        let byte = path.as_bytes()[at];
        format!("{}%{byte:02X}{}", &path[..at], &path[at + 1..])
    });
    prop_oneof![20 => path, 1 => odd.prop_map(str::to_owned), 2 => mutated, 1 => escaped].boxed()
}

fn queries() -> BoxedStrategy<String> {
    let parts = select(vec![
        "watch=true&timeoutSeconds=1",
        "watch&timeoutSeconds=1",
        "limit=1",
        "fieldSelector=metadata.namespace%3Ddefault",
        "fieldSelector=metadata.namespace%3Dzoo",
        "fieldSelector=metadata.namespace%3Disland",
        "fieldSelector=metadata.namespace!%3Ddefault",
        "fieldSelector=metadata.name%3Dzoo",
        "fieldSelector=metadata.name!%3Dx",
        "fieldSelector=;",
        "fieldSelector=",
        "fieldSelector=%zz",
        "field%53elector=metadata.name%3Dzoo",
        "fieldSelector=involvedObject.namespace%3Ddefault",
        "labelSelector=a%3Db",
        "labelSelector=",
        "dryRun=All",
        "fieldManager=m",
        "fieldManager=m&force=true",
        "pretty=true",
        "propagationPolicy=Background",
        "namespace=zoo",
        "resourceVersion=0",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "sendInitialEvents=true",
        "gracePeriodSeconds=0",
        "allowWatchBookmarks=true",
        "continue=x",
    ]);
    prop::collection::vec(parts, 0..3)
        .prop_map(|parts| parts.join("&"))
        .boxed()
}

/// What stands where a namespace is to stand.
fn written_namespaces() -> BoxedStrategy<Value> {
    let names = vec![
        json!("default"),
        json!("default"),
        json!("default"),
        json!(null),
        json!(""),
        json!("island"),
        json!("zoo"),
        json!("jungle"),
        json!("kube-system"),
        json!("missing"),
        json!(5),
        json!(["zoo"]),
        json!({"a": "zoo"}),
        json!("../zoo"),
    ];
    select(names).boxed()
}

/// The text of a body and its type.
fn bodies() -> BoxedStrategy<(String, String)> {
    let object = (written_namespaces(), written_namespaces(), names(), any::<u8>()).prop_map(|(own, other, name, random)| {
        let (_, _, base) = &objects()[usize::from(random) % objects().len()];
        let mut object = base.clone();
        object["metadata"] = json!({"name": name, "namespace": own, "annotations": {"n": random.to_string()}});
        if random % 3 == 0 {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        if random % 4 == 0 {
            object = json!({"metadata": {"name": name, "namespace": own}, "reason": "R", "type": "Normal", "eventTime": null,
                "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": other},
                "regarding": {"kind": "ConfigMap", "name": "a", "namespace": other}, "related": {"namespace": other}});
        }
        if random % 5 == 0 {
            object["ownerReferences"] = json!([]);
            object["deleteOptions"] = json!({"gracePeriodSeconds": 0});
            object["target"] = json!({"kind": "Node", "name": "n", "namespace": other});
            object["subjects"] = json!([{"kind": "ServiceAccount", "name": "a", "namespace": other}]);
            object["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"});
        }
        object
    });
    let typed = object.clone().prop_flat_map(|object| {
        let types = [
            ("v1", "ConfigMap"),
            ("v1", "Secret"),
            ("v1", "Pod"),
            ("v1", "Namespace"),
            ("v1", "Node"),
            ("apps/v1", "Deployment"),
            ("autoscaling/v1", "Scale"),
            ("policy/v1", "Eviction"),
            ("v1", "Binding"),
            ("v1", "List"),
            ("v1", "DeleteOptions"),
            ("example.com/v1", "Widget"),
            ("example.com/v1", "Gadget"),
            ("events.k8s.io/v1", "Event"),
            ("v1", "Status"),
        ];
        select(types.to_vec()).prop_map(move |(version, kind)| {
            let mut object = object.clone();
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            object.to_string()
        })
    });
    let pointers = select(vec![
        "/metadata/namespace",
        "/metadata/namespace",
        "/metadata",
        "",
        "/metadata/name",
        "/metadata/annotations/x",
        "/data/x",
        "/metadata/namesp~0ace",
        "/involvedObject/namespace",
        "/related",
        "/metadata~1namespace",
        "metadata/namespace",
        "/spec/replicas",
    ]);
    let operation = (
        select(vec!["add", "replace", "test", "remove", "move", "copy"]),
        pointers.clone(),
        pointers,
        written_namespaces(),
        object.clone(),
        any::<u8>(),
    )
        .prop_map(|(op, path, from, namespace, object, random)| {
            let value = match random % 4 {
                0 => object,
                1 => object["metadata"].clone(),
                _ => namespace,
            };
            json!({"op": op, "path": path, "from": from, "value": value})
        });
    let operations =
        prop::collection::vec(operation, 1..3).prop_map(|operations| Value::from(operations).to_string());
    let odd = select(vec![
        "",
        "{",
        "[]",
        "null",
        "x: y",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: zoo}",
        r#"{"metadata":{"name":"a","namespace":"default"},"metadata":{"name":"a","namespace":"zoo"}}"#,
        r#"{"metadata":{"name":"a","namespace":"default","namespace":"zoo"},"data":{"x":"y"}}"#,
        r#"{"met\u0061data":{"n\u0061mespace":"zoo","name":"a"}}"#,
        r#"{"Metadata":{"Namespace":"zoo","name":"a"}}"#,
        r#"[{"op":"add","path":"/data/x","value":"y","path":"/metadata/namespace"}]"#,
        "\u{0}",
        "k8s\u{0}",
    ]);
    let media = select(vec![
        "application/json",
        "application/json",
        "application/merge-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/apply-patch+yaml",
    ]);
    let odd_media = select(vec![
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
        "application/apply-patch+cbor",
        "",
        "text/plain",
        "application/json-patch+json; charset=utf-8",
        "Application/Merge-Patch+JSON",
        "application/json, application/yaml",
    ]);
    prop_oneof![
        10 => (typed, media.clone()),
        4 => (object.prop_map(|object| object.to_string()), media),
        5 => (operations, Just("application/json-patch+json")),
        2 => (odd.prop_map(str::to_owned), select(vec!["application/json", "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"])),
        1 => (Just(r#"{"metadata":{"name":"a","namespace":"zoo"}}"#.to_owned()), odd_media),
    ]
    .prop_map(|(body, media)| (body, media.to_owned()))
    .boxed()
}

/// Requests that are right but for a namespace here and there.
fn sound() -> BoxedStrategy<Raw> {
    let namespace =
        prop_oneof![6 => Just(json!("default")), 2 => Just(json!(null)), 1 => written_namespaces()];
    let verbs = select(vec![
        "get",
        "list",
        "watch",
        "create",
        "update",
        "merge",
        "strategic",
        "apply",
        "json",
        "delete",
        "deletecollection",
        "get/status",
        "merge/status",
        "get/scale",
        "merge/scale",
        "get events",
        "create event",
        "list all",
        "watch all",
    ]);
    (verbs, 0..objects().len(), select(vec!["a", "b", "c"]), namespace, queries(), any::<u8>())
        .prop_map(|(verb, kind, name, namespace, query, random)| {
            let (root, plural, mut object) = objects().swap_remove(kind);
            let (verb, part) = verb.split_once('/').unwrap_or((verb, ""));
            let (root, plural) = match part {
                "scale" => ("apis/apps/v1", "deployments"),
                _ => (root, plural),
            };
            let part = if part.is_empty() { String::new() } else { format!("/{part}") };
            object["metadata"] = json!({"name": name, "namespace": namespace, "labels": {"a": "b"}, "annotations": {"n": random.to_string()}});
            let patch = match &*part {
                "/scale" => json!({"metadata": {"namespace": namespace}, "spec": {"replicas": random}}),
                _ => json!({"metadata": {"namespace": namespace, "annotations": {"n": random.to_string()}}}),
            };
            let (all, one) = (format!("/{root}/namespaces/default/{plural}"), format!("/{root}/namespaces/default/{plural}/{name}{part}"));
            match verb {
                "get" => Raw::new("GET", one),
                "list" => Raw::new("GET", format!("{all}?{query}")),
                "watch" => Raw::new("GET", format!("{all}?watch=1&timeoutSeconds=1")),
                "list all" => Raw::new("GET", format!("/{root}/{plural}?{query}")),
                "watch all" => Raw::new("GET", format!("/{root}/{plural}?watch=1&timeoutSeconds=1&{query}")),
                "create" => Raw::new("POST", all).body("application/json", object),
                "update" => Raw::new("PUT", one).body("application/json", object),
                "merge" => Raw::new("PATCH", one).body("application/merge-patch+json", patch),
                "strategic" => Raw::new("PATCH", one).body("application/strategic-merge-patch+json", patch),
                "apply" => {
                    let own = |object: &Value| (object["apiVersion"].clone(), object["kind"].clone());
                    if own(&object).0.is_null() {
                        object["apiVersion"] = root.trim_start_matches("apis/").trim_start_matches("api/").into();
                        let kind = ["ConfigMap", "Secret", "Service", "ServiceAccount", "Pod", "Deployment", "Role", "Lease"][kind];
                        object["kind"] = kind.into();
                    }
                    Raw::new("PATCH", format!("{one}?fieldManager=m&force=true")).body("application/apply-patch+yaml", object)
                }
                "json" => {
                    let operations = json!([{"op": "test", "path": "/metadata/namespace", "value": namespace},
                        {"op": "add", "path": "/metadata/annotations/x", "value": "y"}]);
                    Raw::new("PATCH", one).body("application/json-patch+json", operations)
                }
                "delete" => Raw::new("DELETE", one),
                "deletecollection" => Raw::new("DELETE", format!("{all}?{query}")),
                "create event" => Raw::new("POST", "/api/v1/namespaces/default/events").body(
                    "application/json",
                    json!({"metadata": {"generateName": "e", "namespace": namespace}, "reason": "R", "type": "Normal",
                        "involvedObject": {"kind": "ConfigMap", "name": name, "namespace": namespace}, "related": {"namespace": "zoo"}}),
                ),
                _ => Raw::new("GET", format!("/api/v1/events?{query}")),
            }
        })
        .boxed()
}

fn requests() -> BoxedStrategy<Raw> {
    let methods = select(vec![
        "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "PATCH", "DELETE",
        "DELETE", "OPTIONS",
    ]);
    let accepts = prop_oneof![
        8 => Just(""),
        2 => select(vec!["application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json", "*/*",
            "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json", "application/yaml",
            "application/cbor, */*", "application/json;stream=watch"]),
    ];
    let hostile = (methods, paths(), queries(), bodies(), accepts, any::<bool>()).prop_map(
        |(method, path, query, (body, media), accept, host)| {
            let joint = if path.contains('?') { "&" } else { "?" };
            let uri = if query.is_empty() {
                path
            } else {
                format!("{path}{joint}{query}")
            };
            let mut raw = Raw::new(method, uri);
            if !matches!(method, "GET" | "HEAD") || host {
                raw = raw.body(&media, body);
            }
            if !accept.is_empty() {
                raw = raw.accept(accept);
            }
            if host {
                raw.headers.push(("accept-encoding", "gzip".into()));
                raw.headers.push(("x-http-method-override", "DELETE".into()));
                raw.headers
                    .push(("x-original-url", "/api/v1/namespaces/zoo/configmaps/a".into()));
            }
            raw
        },
    );
    prop_oneof![2 => hostile, 1 => sound()].boxed()
}

/// Whether a cluster that is the namespace `island` may have led to this.
fn is_allowed(event: &AuditEvent) -> bool {
    let reads = matches!(&*event.verb, "get" | "list" | "watch" | "head");
    match (&*event.resource, &*event.namespace) {
        // The kind Namespace: the own one is read. What is in a path there, the API server counts as its namespace.
        ("namespaces", _) => {
            let only = event
                .uri
                .starts_with("/api/v1/namespaces?fieldSelector=metadata.name%3Disland");
            reads && (event.name == "island" && event.uri.starts_with("/api/v1/namespaces/island") || only)
        }
        ("", _) => {
            let first = event
                .uri
                .trim_start_matches('/')
                .split(['/', '?'])
                .next()
                .unwrap_or_default();
            reads
                && ["api", "apis", "version", "openapi", "healthz", "livez", "readyz"].contains(&first)
                && !event.uri.split(['/', '?']).any(|segment| segment == "..")
        }
        (_, namespace) => namespace == "island",
    }
}

/// Whether an answer has nothing in it of other namespaces, and shows the own one by the name it has inside.
fn is_clean(raw: &Raw, reply: &Reply, inside: &str) -> bool {
    // What is connected to answers in the forms it likes, and so do refusals of it.
    let connected = ["/proxy", "/log", "/exec", "/attach", "/portforward"]
        .iter()
        .any(|part| raw.uri.contains(part));
    let other_form = ["protobuf", "cbor"].iter().any(|form| reply.media.contains(form));
    !reply.text.contains(CANARY) && (connected || !other_form && is_inside(&reply.json(), inside))
}

/// Of an object, a list, a table, or the events of a watch.
fn is_inside(value: &Value, inside: &str) -> bool {
    let own = value["metadata"]["namespace"]
        .as_str()
        .is_none_or(|namespace| namespace == inside);
    let below = ["items", "rows"]
        .into_iter()
        .filter_map(|field| value[field].as_array())
        .flatten();
    let events = value.as_array().into_iter().flatten();
    own && below.chain(events).all(|value| is_inside(value, inside))
        && (value["object"].is_null() || is_inside(&value["object"], inside))
}

async fn others(host: &Client) -> BTreeMap<String, String> {
    let mut objects = snapshot(host).await;
    objects.retain(|object, _| {
        // Of the namespace itself, and what API servers write by themselves.
        !object.contains(" island/")
            && !object.contains("/leases kube-system/")
            && !object.contains("/leasecandidates ")
    });
    objects
}

async fn hostile(seed: u8, keep: bool) {
    let plane = ControlPlane::builder()
        .audit(true)
        .crd(crd("widgets", "Widget", "Namespaced"))
        .crd(crd("gadgets", "Gadget", "Cluster"))
        .start()
        .await
        .unwrap();
    let host = plane.client();
    for name in OTHERS.into_iter().chain(["island"]) {
        namespace(&host, name).await;
    }
    for other in OTHERS {
        fill(&host, other, CANARY).await;
    }
    for (path, object) in [
        (
            "/apis/example.com/v1/gadgets",
            json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "a", "annotations": {"m": CANARY}}}),
        ),
    ] {
        assert_eq!(
            ask(&host, &Raw::new("POST", path).body("application/json", object))
                .await
                .unwrap()
                .code,
            201
        );
    }
    let user = plane
        .user(USER)
        .groups(["system:masters"])
        .create()
        .await
        .unwrap();
    let upstream = user.client().await.unwrap();
    let island = NamespaceMapping::new()
        .keep_names(keep)
        .client(&upstream, "island")
        .unwrap();

    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let requests = requests();
    // Names of inside stand for those of outside in one of them only.
    let named = |mut raw: Raw| {
        if keep {
            raw.uri = raw.uri.replace("namespaces/default", "namespaces/island");
            raw.body = raw.body.replace("\"default\"", "\"island\"");
        }
        raw
    };
    let before = others(&host).await;
    let mut answered = 0;
    for round in 0..ROUNDS {
        fill(&host, "island", "own").await;
        let round_of: Vec<Raw> = (0..ROUND)
            .map(|_| named(requests.new_tree(&mut runner).unwrap().current()))
            .collect();
        let replies = stream::iter(round_of).map(|raw| {
            let island = &island;
            async move { (ask(island, &raw).await, raw) }
        });
        let mut replies = replies.buffer_unordered(AT_ONCE);
        while let Some((reply, raw)) = replies.next().await {
            let Some(reply) = reply else { continue };
            answered += 1;
            assert!(
                is_clean(&raw, &reply, if keep { "island" } else { "default" }),
                "round {round}, {raw:?} was answered: {}",
                reply.text
            );
        }
    }
    assert!(answered > ROUND * ROUNDS / 2, "{answered} requests were answered");

    let log = plane.audit().await.unwrap();
    let seen: Vec<&AuditEvent> = log.events().filter(|event| event.user == USER).collect();
    let stray: Vec<_> = seen.iter().filter(|event| !is_allowed(event)).collect();
    assert!(
        stray.is_empty(),
        "{} requests strayed: {:#?}",
        stray.len(),
        &stray[..stray.len().min(5)]
    );

    let after = others(&host).await;
    let changed: Vec<_> = before
        .iter()
        .filter(|(object, state)| after.get(*object) != Some(*state))
        .collect();
    let added: Vec<_> = after
        .keys()
        .filter(|object| !before.contains_key(*object))
        // Of the addresses of Services, in the own namespace too, the API server keeps its own books.
        .filter(|object| !object.contains("/ipaddresses ") && !object.contains("/events default/10."))
        .collect();
    assert!(
        changed.is_empty() && added.is_empty(),
        "changed: {changed:?}, added: {added:?}"
    );

    // All of this says little if nothing went through.
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for event in seen.iter().filter(|event| event.is_start() && event.code < 300) {
        let part = if event.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", event.subresource)
        };
        *done.entry(format!("{}{part}", event.verb)).or_default() += 1;
    }
    for (verb, least) in [
        ("get", 40),
        ("list", 40),
        ("watch", 10),
        ("create", 10),
        ("update", 5),
        ("patch", 20),
        ("delete", 10),
        ("deletecollection", 10),
        ("get/status", 3),
        ("patch/status", 1),
        ("get/scale", 1),
    ] {
        assert!(
            done.get(verb).is_some_and(|done| *done >= least),
            "{verb} has succeeded too seldom: {done:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leads_out_of_a_namespace() {
    hostile(7, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leads_out_of_a_namespace_that_keeps_its_name() {
    hostile(11, true).await;
}
