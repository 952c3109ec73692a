//! Random requests: sound ones, and all kinds of wrong ones.

use proptest::{prelude::*, sample::select, strategy::BoxedStrategy};
use serde_json::json;

use crate::{harness::Raw, rounds::objects};

fn namespaces() -> BoxedStrategy<&'static str> {
    prop_oneof![
        8 => Just("island"),
        6 => select(&["default", "zoo", "jungle", "kube-system", "missing"][..]),
        1 => select(&["", "*", "-", ".", "..", "%2e%2e", "zoo%2F", "island%2f..%2fzoo", "../zoo", "island/../zoo", "%69sland",
            "%7aoo", "Island", "zoo;island", "island,zoo", "zoo%00", "island%20", "_all", "island/status", "zoo/finalize"][..]),
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

/// The text of a body and its type. The API server compares the namespace in it with that of the path.
fn bodies() -> BoxedStrategy<(String, String)> {
    let namespace = select(vec![
        json!("island"),
        json!("island"),
        json!(null),
        json!("zoo"),
        json!("default"),
        json!("../zoo"),
    ]);
    let object = (namespace.clone(), names(), 0..objects().len(), any::<u8>()).prop_map(
        |(namespace, name, kind, random)| {
            let (_, _, mut object) = objects().swap_remove(kind);
            object["metadata"] = json!({"name": name, "namespace": namespace, "annotations": {"n": random.to_string()}});
            object.to_string()
        },
    );
    let operation = (select(vec!["/metadata/namespace", "/metadata", "/data/x"]), namespace).prop_map(
        |(path, namespace)| json!([{"op": "add", "path": path, "value": namespace}]).to_string(),
    );
    let media = select(vec![
        "application/json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/yaml",
    ]);
    prop_oneof![4 => (object, media), 1 => (operation, Just("application/json-patch+json"))]
        .prop_map(|(body, media)| (body, media.to_owned()))
        .boxed()
}

/// Requests that are right.
fn sound() -> BoxedStrategy<Raw> {
    let verbs = select(vec![
        "get", "list", "watch", "create", "update", "merge", "delete", "deletecollection", "get/status", "merge/status",
        "get/scale", "list all", "watch all",
    ]);
    (verbs, 0..objects().len(), select(vec!["a", "b", "c"]), queries(), any::<u8>())
        .prop_map(|(verb, kind, name, query, random)| {
            let (root, plural, mut object) = objects().swap_remove(kind);
            let (verb, part) = verb.split_once('/').unwrap_or((verb, ""));
            let (root, plural) = match part {
                "scale" => ("apis/apps/v1", "deployments"),
                _ => (root, plural),
            };
            let part = if part.is_empty() { String::new() } else { format!("/{part}") };
            let metadata = json!({"name": name, "namespace": "island", "annotations": {"n": random.to_string()}});
            object["metadata"] = metadata.clone();
            let all = format!("/{root}/namespaces/island/{plural}");
            let one = format!("{all}/{name}{part}");
            match verb {
                "get" => Raw::new("GET", one),
                "list" => Raw::new("GET", format!("{all}?{query}")),
                "watch" => Raw::new("GET", format!("{all}?watch=1&timeoutSeconds=1")),
                "list all" => Raw::new("GET", format!("/{root}/{plural}?{query}")),
                "watch all" => Raw::new("GET", format!("/{root}/{plural}?watch=1&timeoutSeconds=1&{query}")),
                "create" => Raw::new("POST", all).body("application/json", object),
                "update" => Raw::new("PUT", one).body("application/json", object),
                "merge" => Raw::new("PATCH", one).body("application/merge-patch+json", json!({"metadata": metadata})),
                "delete" => Raw::new("DELETE", one),
                _ => Raw::new("DELETE", format!("{all}?{query}")),
            }
        })
        .boxed()
}

pub(crate) fn requests() -> BoxedStrategy<Raw> {
    let methods = select(vec![
        "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "PATCH", "DELETE",
        "DELETE", "OPTIONS",
    ]);
    let hostile = (methods, paths(), queries(), bodies(), any::<bool>()).prop_map(
        |(method, path, query, (body, media), host)| {
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
            if host {
                raw.headers.push(("x-http-method-override", "DELETE".into()));
                raw.headers
                    .push(("x-original-url", "/api/v1/namespaces/zoo/configmaps/a".into()));
            }
            raw
        },
    );
    prop_oneof![2 => hostile, 1 => sound()].boxed()
}
