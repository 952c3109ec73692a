//! Random requests: sound ones, and all kinds of wrong ones.

use proptest::{prelude::*, sample::select, strategy::BoxedStrategy};
use serde_json::{Value, json};

use crate::{harness::Raw, hostile::objects};

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

/// Values in the place of a namespace.
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

pub(crate) fn requests() -> BoxedStrategy<Raw> {
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
