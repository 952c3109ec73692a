//! What is compared, by subject.

use http::Method;
use serde_json::{Value, json};

use crate::script::{Script, Step, compact, delete, delete_with, get, patch, post, put, raw, watch};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/{ns}/widgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const META: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METAS: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

pub(crate) fn crd() -> Value {
    let parts = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string" }, "count": { "type": "integer" } },
        },
    });
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1 },
            "color": { "type": "string", "enum": ["red", "blue"], "default": "red" },
            "parts": parts,
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "words": { "type": "array", "items": { "type": "string" } },
            "more": { "type": "object", "additionalProperties": { "type": "string" } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    let status = json!({ "type": "object", "properties": { "ready": { "type": "boolean" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"] },
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                    "additionalPrinterColumns": [
                        { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                    ],
                    "schema": { "openAPIV3Schema": schema },
                },
                {
                    "name": "v1beta1", "served": true, "storage": false, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": schema },
                },
            ],
        },
    })
}

fn map(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "app": name, "all": "yes" } }, "data": { "key": "value" },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

fn at(base: &str, rest: &str) -> String {
    format!("{base}{rest}")
}

fn script(name: &str, steps: Vec<Step>) -> Script {
    Script {
        name: name.to_owned(),
        steps,
    }
}

pub(crate) fn all() -> Vec<Script> {
    vec![
        create(),
        update(),
        remove(),
        finalizers(),
        pages(),
        selectors(),
        list_options(),
        watch_state(),
        watch_history(),
        watch_selected(),
        watch_live(),
        watch_streaming(),
        watch_forms(),
        patches(),
        strategic(),
        custom(),
        custom_refused(),
        status(),
        versions(),
        applies(),
        apply_custom(),
        apply_refused(),
        forms(),
        discovery(),
        refused_paths(),
        users(),
        namespaces(),
        built_ins(),
        dry_run(),
        reviews(),
        definitions(),
        pods(),
        scale(),
    ]
}

fn create() -> Script {
    script(
        "create",
        vec![
            post(MAPS, map("a")),
            post(MAPS, map("a")),
            get(&at(MAPS, "/a")),
            get(&at(MAPS, "/nope")),
            post(MAPS, json!({ "metadata": { "name": "bare" } })),
            post(MAPS, json!({ "metadata": {} })),
            post(MAPS, json!({ "metadata": { "name": "BAD_" } })),
            post(MAPS, json!({ "metadata": { "name": "b", "namespace": "other" } })),
            post(
                MAPS,
                json!({ "metadata": { "name": "b", "resourceVersion": "1" } }),
            ),
            post(
                MAPS,
                json!({ "kind": "Secret", "apiVersion": "v1", "metadata": { "name": "b" } }),
            ),
            post(
                MAPS,
                json!({ "kind": "ConfigMap", "apiVersion": "v2", "metadata": { "name": "b" } }),
            ),
            raw(Method::POST, MAPS, "{garbage"),
            raw(Method::POST, MAPS, "[]"),
            post("/api/v1/namespaces/{ns}-nope/configmaps", map("b")),
            post("/api/v1/configmaps", map("b")),
            post(&at(MAPS, "/b"), map("b")),
            post(MAPS, json!({ "metadata": { "generateName": "gen-" } })),
            post(
                MAPS,
                json!({ "metadata": { "name": "o", "ownerReferences": [{ "name": "x" }] } }),
            ),
            post(
                MAPS,
                json!({ "metadata": {
            "name": "kept", "uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7,
            "deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {}, "annotations": { "a": "b" },
        }, "data": {} }),
            ),
            raw(Method::POST, MAPS, "metadata: {name: yaml}\ndata: {a: b}\n")
                .header("content-type", "application/yaml"),
            raw(Method::POST, MAPS, "x").header("content-type", "text/plain"),
        ],
    )
}

fn update() -> Script {
    script(
        "update",
        vec![
            post(MAPS, map("a"))
                .save("rv", "/metadata/resourceVersion")
                .save("uid", "/metadata/uid"),
            put(MAPS, map("a")),
            put(&at(MAPS, "/zz"), map("zz")),
            put(&at(MAPS, "/zz"), map("b")),
            put(&at(MAPS, "/a"), json!({ "metadata": {} })),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a", "resourceVersion": "1" } }),
            ),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a", "resourceVersion": "abc" } }),
            ),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a", "uid": "xyz" } }),
            ),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a", "resourceVersion": "{rv}", "uid": "{uid}" }, "data": { "key": "w" } }),
            ),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a", "resourceVersion": "{rv}" }, "data": { "key": "x" } }),
            ),
            // Unconditional, then one that changes nothing.
            put(&at(MAPS, "/a"), map("a")),
            put(&at(MAPS, "/a"), map("a")),
            put(
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/l",
                json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "x" } }),
            ),
            put(
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/l",
                json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "y" } }),
            ),
        ],
    )
}

fn remove() -> Script {
    script(
        "remove",
        vec![
            delete(&at(MAPS, "/zz")),
            post(MAPS, map("a"))
                .save("rv", "/metadata/resourceVersion")
                .save("uid", "/metadata/uid"),
            delete_with(&at(MAPS, "/a"), json!({ "preconditions": { "uid": "x" } })),
            delete_with(
                &at(MAPS, "/a"),
                json!({ "preconditions": { "resourceVersion": "1" } }),
            ),
            delete_with(&at(MAPS, "/a"), json!({ "propagationPolicy": "Sideways" })),
            delete_with(
                &at(MAPS, "/a"),
                json!({ "propagationPolicy": "Background", "preconditions": { "uid": "{uid}", "resourceVersion": "{rv}" } }),
            ),
            get(&at(MAPS, "/a")),
            post(MAPS, map("a")),
            post(MAPS, map("b")),
            post(MAPS, map("c")),
            delete(&at(MAPS, "?labelSelector=app=a")),
            delete(&at(MAPS, "?fieldSelector=metadata.name=b")),
            get(MAPS),
            delete(MAPS),
            get(MAPS),
            post(MAPS, map("d")),
            delete(&at(MAPS, "/d?propagationPolicy=Background&gracePeriodSeconds=0")),
            delete("/api/v1/namespaces"),
            post(
                "/api/v1/namespaces/{ns}/serviceaccounts",
                json!({ "metadata": { "name": "s" } }),
            ),
            delete("/api/v1/namespaces/{ns}/serviceaccounts/s"),
        ],
    )
}

fn finalizers() -> Script {
    let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } });
    script(
        "finalizers",
        vec![
            post(MAPS, held).save("rv", "/metadata/resourceVersion"),
            delete(&at(MAPS, "/a")),
            delete(&at(MAPS, "/a")),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "data": { "still": "writable" } }),
            ),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/new"] } }),
            ),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "metadata": { "finalizers": null } }),
            ),
            get(&at(MAPS, "/a")),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion={rv}")),
            post(MAPS, map("f")),
            delete_with(&at(MAPS, "/f"), json!({ "propagationPolicy": "Foreground" })),
            post(MAPS, map("o")),
            delete_with(&at(MAPS, "/o"), json!({ "propagationPolicy": "Orphan" })),
            post(
                WIDGETS,
                json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "finalizers": ["example.com/hold"] }, "spec": { "size": 1 } }),
            ),
            delete(&at(WIDGETS, "/w")),
            patch(
                "merge",
                &at(WIDGETS, "/w"),
                json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/new"] } }),
            ),
            patch(
                "json",
                &at(WIDGETS, "/w"),
                json!([{ "op": "remove", "path": "/metadata/finalizers" }]),
            ),
            get(&at(WIDGETS, "/w")),
        ],
    )
}

fn pages() -> Script {
    let mut steps: Vec<Step> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| post(MAPS, map(name)))
        .collect();
    steps.extend([
        get(&at(MAPS, "?limit=2")).save("token", "/metadata/continue"),
        delete(&at(MAPS, "/d")),
        post(MAPS, map("ab")),
        put(
            &at(MAPS, "/e"),
            json!({ "metadata": { "name": "e" }, "data": { "key": "new" } }),
        ),
        get(&at(MAPS, "?limit=2&continue={token}")).save("token", "/metadata/continue"),
        get(&at(MAPS, "?limit=2&continue={token}")),
        get(&at(MAPS, "?limit=2&continue={token}&resourceVersion=5")),
        get(&at(MAPS, "?limit=500")),
        get(&at(MAPS, "?limit=2&labelSelector=all%3Dyes")).save("token", "/metadata/continue"),
        get(&at(MAPS, "?limit=2&labelSelector=all%3Dyes&continue={token}")),
        get(&at(MAPS, "?limit=2&resourceVersion=0")),
        get(&at(MAPS, "?limit=0")),
        get(&at(MAPS, "?limit=-1")),
        get(&at(MAPS, "?limit=abc")),
        get(&at(MAPS, "?continue=abc")),
        get(&at(MAPS, "?limit=2")).accept(METAS),
        post(WIDGETS, widget("a", json!({ "size": 1 }))),
        post(WIDGETS, widget("b", json!({ "size": 1 }))),
        get(&at(WIDGETS, "?limit=1")),
    ]);
    script("pages", steps)
}

fn selectors() -> Script {
    let mut steps: Vec<Step> = ["a", "b", "c"].iter().map(|name| post(MAPS, map(name))).collect();
    steps.push(post(
        MAPS,
        json!({ "metadata": { "name": "bare", "labels": { "n": "5", "x.io/y": "z" } } }),
    ));
    for selector in [
        "app=a",
        "app==a",
        "app!=a",
        "app in (a,b)",
        "app notin (a,b)",
        "app",
        "!app",
        "app,all=yes",
        "app=a,app=b",
        "n>4",
        "n<5",
        "n>x",
        "x.io/y=z",
        "app in (a, )",
        " app = a ",
        "app=",
        "app in ()",
        "app===a",
        "app in (x",
        "!!a",
        "app=a,",
        ",",
        "app a",
        "in",
        "app in",
        "=",
        "app!a",
        "x/y/z=1",
        "app=a b",
        "-bad=1",
    ] {
        let encoded: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        steps.push(get(&at(MAPS, &format!("?labelSelector={encoded}"))));
    }
    for selector in [
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a",
        "metadata.namespace={ns}",
        "metadata.namespace!={ns}",
        "metadata.name=a,metadata.namespace={ns}",
        "data.key=value",
        "foo",
        "",
    ] {
        steps.push(get(&at(MAPS, &format!("?fieldSelector={selector}"))));
    }
    steps.push(get("/api/v1/configmaps?fieldSelector=metadata.namespace={ns}"));
    steps.push(get(&at(WIDGETS, "?fieldSelector=spec.size=1")));
    steps.push(get("/api/v1/namespaces?fieldSelector=metadata.name={ns}"));
    steps.push(post(
        "/api/v1/namespaces/{ns}/secrets",
        json!({ "metadata": { "name": "s" }, "type": "my" }),
    ));
    steps.push(get("/api/v1/namespaces/{ns}/secrets?fieldSelector=type=my"));
    steps.push(get("/api/v1/namespaces/{ns}/secrets?fieldSelector=type=other"));
    steps.push(get("/api/v1/namespaces/{ns}/secrets?fieldSelector=foo=other"));
    script("selectors", steps)
}

fn list_options() -> Script {
    let mut steps = vec![
        post(MAPS, map("a")).save("first", "/metadata/resourceVersion"),
        post(MAPS, map("b")).save("second", "/metadata/resourceVersion"),
        delete(&at(MAPS, "/a")),
    ];
    for query in [
        "resourceVersion=0",
        "resourceVersion={first}",
        "resourceVersion={first}&resourceVersionMatch=NotOlderThan",
        "resourceVersion={first}&resourceVersionMatch=Exact",
        "resourceVersion={second}&resourceVersionMatch=Exact",
        "resourceVersion={second}&resourceVersionMatch=Exact&limit=1",
        "resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=1",
        "resourceVersion={second}&limit=1",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersion=abc",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Foo&resourceVersion=1",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersion=99999999&resourceVersionMatch=NotOlderThan",
        "resourceVersion=99999999",
        "resourceVersion=99999999&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "sendInitialEvents=false",
        "timeoutSeconds=abc",
        "watch=false",
        "allowWatchBookmarks=true",
        "unknown=1",
    ] {
        steps.push(get(&at(MAPS, &format!("?{query}"))));
    }
    script("list_options", steps)
}

fn watch_state() -> Script {
    let mut steps = vec![
        post(MAPS, map("b")),
        post(MAPS, map("a")),
        post(MAPS, map("c")),
        delete(&at(MAPS, "/c")),
    ];
    for query in [
        "",
        "&resourceVersion=0",
        "&labelSelector=app%3Da",
        "&fieldSelector=metadata.name%3Db",
        "&limit=1",
        "&resourceVersion=abc",
        "&resourceVersion=99999999",
        "&resourceVersionMatch=NotOlderThan",
        "&continue=abc",
        "&sendInitialEvents=true",
        "&allowWatchBookmarks=true",
        "&allowWatchBookmarks=true&resourceVersion=0",
        "&allowWatchBookmarks=true&resourceVersion=1",
        "&sendInitialEvents=true&resourceVersionMatch=Exact",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=1",
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=abc",
    ] {
        steps.push(get(&at(MAPS, &format!("?watch=true&timeoutSeconds=1{query}"))));
    }
    steps.push(get(&at(MAPS, "?watch=true&timeoutSeconds=abc")));
    steps.push(get(&at(MAPS, "?watch=1&timeoutSeconds=1")));
    script("watch_state", steps)
}

fn watch_history() -> Script {
    script(
        "watch_history",
        vec![
            post(MAPS, map("a")).save("rv", "/metadata/resourceVersion"),
            put(
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "a" }, "data": { "key": "2" } }),
            )
            .save("rv2", "/metadata/resourceVersion"),
            post(MAPS, map("b")),
            delete(&at(MAPS, "/a")),
            post(MAPS, map("a")),
            delete(MAPS),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion={rv}")),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion={rv2}")),
            get(&at(
                MAPS,
                "?watch=true&timeoutSeconds=1&resourceVersion={rv}&fieldSelector=metadata.name%3Db",
            )),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion={rv}")).accept(META),
        ],
    )
}

fn watch_selected() -> Script {
    let label = |name: &str, value: Value| {
        patch(
            "merge",
            &at(MAPS, &format!("/{name}")),
            json!({ "metadata": { "labels": { "app": value } } }),
        )
    };
    script(
        "watch_selected",
        vec![
            post(MAPS, map("z")).save("rv", "/metadata/resourceVersion"),
            post(MAPS, map("a")),
            post(MAPS, map("b")),
            label("b", json!("a")),
            patch("merge", &at(MAPS, "/a"), json!({ "data": { "key": "2" } })),
            label("a", Value::Null),
            patch("merge", &at(MAPS, "/a"), json!({ "data": { "key": "3" } })),
            label("a", json!("a")),
            delete(&at(MAPS, "/a")),
            delete(&at(MAPS, "/z")),
            get(&at(
                MAPS,
                "?watch=true&timeoutSeconds=1&resourceVersion={rv}&labelSelector=app%3Da",
            )),
            get(&at(
                MAPS,
                "?watch=true&timeoutSeconds=1&resourceVersion={rv}&labelSelector=app%21%3Da",
            )),
        ],
    )
}

fn watch_live() -> Script {
    script(
        "watch_live",
        vec![
            post(MAPS, map("a")).save("rv", "/metadata/resourceVersion"),
            watch(&at(MAPS, "?watch=true&timeoutSeconds=6&resourceVersion={rv}")),
            watch(&at(MAPS, "?watch=true&timeoutSeconds=6")),
            watch(&at(MAPS, "?watch=true&timeoutSeconds=6&labelSelector=app%3Db")),
            watch(&at(WIDGETS, "?watch=true&timeoutSeconds=6")),
            post(MAPS, map("b")),
            patch("merge", &at(MAPS, "/b"), json!({ "data": { "key": "2" } })),
            // Nothing changes, nothing is told.
            patch("merge", &at(MAPS, "/b"), json!({ "data": { "key": "2" } })),
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            delete(&at(MAPS, "/b")),
            patch(
                "merge",
                &at(WIDGETS, "/w/status"),
                json!({ "status": { "ready": true } }),
            ),
            delete(&at(WIDGETS, "/w")),
        ],
    )
}

fn watch_streaming() -> Script {
    let streaming = "watch=true&timeoutSeconds=6&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    script(
        "watch_streaming",
        vec![
            post(MAPS, map("b")),
            post(MAPS, map("a")),
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            watch(&at(MAPS, &format!("?{streaming}"))),
            watch(&at(MAPS, &format!("?{streaming}&labelSelector=app%3Da"))),
            watch(&at(MAPS, &format!("?{streaming}"))).accept(META),
            watch(&at(WIDGETS, &format!("?{streaming}"))),
            watch(&at(
                "/apis/example.com/v1beta1/namespaces/{ns}/widgets",
                &format!("?{streaming}"),
            )),
            // Long enough for the initial events on a busy machine.
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion=99999999")),
            post(MAPS, map("c")),
            delete(&at(MAPS, "/a")),
        ],
    )
}

fn watch_forms() -> Script {
    script(
        "watch_forms",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            post(WIDGETS, widget("v", json!({ "size": 2 }))),
            get(&at(WIDGETS, "?watch=true&timeoutSeconds=1")).accept(TABLE),
            get(&at(WIDGETS, "?watch=true&timeoutSeconds=1")).accept(META),
            get(&at(WIDGETS, "?watch=true&timeoutSeconds=1")).accept("text/html"),
        ],
    )
}

fn patches() -> Script {
    script(
        "patches",
        vec![
            post(MAPS, map("a")),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "data": { "key": null, "new": "1" }, "metadata": { "labels": null } }),
            ),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "metadata": { "resourceVersion": "1" } }),
            ),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "metadata": { "uid": "other" } }),
            ),
            patch(
                "merge",
                &at(MAPS, "/a"),
                json!({ "metadata": { "name": "other" } }),
            ),
            patch("merge", &at(MAPS, "/a"), json!([1])),
            patch("merge", &at(MAPS, "/nope"), json!({})),
            patch("merge", &at(MAPS, "/a"), json!({})),
            patch(
                "json",
                &at(MAPS, "/a"),
                json!([{ "op": "add", "path": "/data/x", "value": "y" }]),
            ),
            patch(
                "json",
                &at(MAPS, "/a"),
                json!([{ "op": "test", "path": "/data/x", "value": "z" }]),
            ),
            patch(
                "json",
                &at(MAPS, "/a"),
                json!([{ "op": "test", "path": "/data/x", "value": "y" }, { "op": "move", "from": "/data/x", "path": "/data/moved" }]),
            ),
            patch(
                "json",
                &at(MAPS, "/a"),
                json!([{ "op": "remove", "path": "/data/nope" }]),
            ),
            patch("json", &at(MAPS, "/a"), json!({ "op": "remove" })),
            patch("application/json", &at(MAPS, "/a"), json!({})),
            patch("text/plain", &at(MAPS, "/a"), json!({})),
            patch("merge", MAPS, json!({})),
            patch("merge", &at(MAPS, "/a?force=true"), json!({})),
            patch(
                "merge",
                &at(MAPS, "/a?fieldManager=other"),
                json!({ "data": { "new": "2" } }),
            ),
        ],
    )
}

fn strategic() -> Script {
    let accounts = "/api/v1/namespaces/{ns}/serviceaccounts";
    script(
        "strategic",
        vec![
            post(MAPS, map("a")),
            patch(
                "strategic",
                &at(MAPS, "/a"),
                json!({ "data": { "key": null, "z": "1" } }),
            ),
            patch(
                "strategic",
                &at(MAPS, "/a"),
                json!({ "data": { "$patch": "replace", "only": "1" } }),
            ),
            patch(
                "strategic",
                &at(MAPS, "/a"),
                json!({ "metadata": { "finalizers": ["example.com/a"] } }),
            ),
            patch(
                "strategic",
                &at(MAPS, "/a"),
                json!({ "metadata": { "finalizers": ["example.com/b"] } }),
            ),
            patch(
                "strategic",
                &at(MAPS, "/a"),
                json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/a"] } }),
            ),
            post(
                accounts,
                json!({ "metadata": { "name": "s" }, "secrets": [{ "name": "x" }], "imagePullSecrets": [{ "name": "p" }] }),
            ),
            patch(
                "strategic",
                &at(accounts, "/s"),
                json!({ "secrets": [{ "name": "y" }], "imagePullSecrets": [{ "name": "q" }] }),
            ),
            patch(
                "strategic",
                &at(accounts, "/s"),
                json!({ "secrets": [{ "name": "x", "$patch": "delete" }] }),
            ),
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            patch("strategic", &at(WIDGETS, "/w"), json!({ "spec": { "size": 2 } })),
        ],
    )
}

fn custom() -> Script {
    script("custom", vec![
        post(WIDGETS, json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
            "spec": { "size": 1, "junk": 2, "parts": [{ "name": "p", "count": 1, "junk": 1 }], "free": { "any": [1] }, "more": { "a": "b" } },
            "status": { "ready": true }, "extra": 1,
        })).save("rv", "/metadata/resourceVersion"),
        get(&at(WIDGETS, "/w")),
        get(WIDGETS),
        put(&at(WIDGETS, "/w"), widget("w", json!({ "size": 2 }))),
        put(&at(WIDGETS, "/w"), json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "resourceVersion": "{rv}" }, "spec": { "size": 2, "color": "blue" } })),
        put(&at(WIDGETS, "/w"), json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "resourceVersion": "{rv}" }, "spec": { "size": 3 } })),
        put(&at(WIDGETS, "/zz"), json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "zz", "resourceVersion": "1" }, "spec": { "size": 3 } })),
        patch("merge", &at(WIDGETS, "/w"), json!({ "spec": { "size": 3 } })),
        patch("merge", &at(WIDGETS, "/w"), json!({ "metadata": { "labels": { "a": "b" } } })),
        patch("merge", &at(WIDGETS, "/w"), json!({ "spec": { "color": null } })),
        patch("json", &at(WIDGETS, "/w"), json!([{ "op": "replace", "path": "/spec/size", "value": 5 }])),
        get(&at(WIDGETS, "/w/scale")),
        get(&at(WIDGETS, "/w/foo")),
        delete(&at(WIDGETS, "/w")),
        delete(&at(WIDGETS, "/w")),
        delete(WIDGETS),
        get("/apis/example.com/v1/widgets?fieldSelector=metadata.namespace={ns}"),
    ])
}

fn custom_refused() -> Script {
    script(
        "custom_refused",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 0, "color": "green" }))),
            post(WIDGETS, widget("w", json!({}))),
            post(WIDGETS, widget("w", json!({ "size": "x" }))),
            post(
                WIDGETS,
                json!({ "metadata": { "name": "w" }, "spec": { "size": 1 } }),
            ),
            post(
                WIDGETS,
                json!({ "apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": 1 } }),
            ),
            post(
                WIDGETS,
                json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "w" }, "spec": { "size": 1 } }),
            ),
            post(
                WIDGETS,
                json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}, "spec": { "size": 1 } }),
            ),
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            patch("merge", &at(WIDGETS, "/w"), json!({ "spec": { "size": 0 } })),
            patch(
                "merge",
                &at(WIDGETS, "/w"),
                json!({ "spec": { "parts": [{ "count": 1 }] } }),
            ),
            patch(
                "merge",
                &at(WIDGETS, "/w/status"),
                json!({ "status": { "ready": "x" } }),
            ),
        ],
    )
}

fn status() -> Script {
    script(
        "status",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 1 }))).save("rv", "/metadata/resourceVersion"),
            put(
                &at(WIDGETS, "/w/status"),
                json!({
                    "apiVersion": "example.com/v1", "kind": "Widget",
                    "metadata": { "name": "w", "resourceVersion": "{rv}", "labels": { "a": "b" } },
                    "spec": { "size": 7 }, "status": { "ready": true },
                }),
            ),
            patch(
                "merge",
                &at(WIDGETS, "/w"),
                json!({ "spec": { "size": 3 }, "status": { "ready": false } }),
            ),
            patch(
                "merge",
                &at(WIDGETS, "/w/status"),
                json!({ "status": { "ready": false }, "spec": { "size": 99 } }),
            ),
            patch(
                "merge",
                &at(WIDGETS, "/w/status"),
                json!({ "status": { "ready": false } }),
            ),
            get(&at(WIDGETS, "/w/status")),
            get(&at(WIDGETS, "/nope/status")),
            patch("merge", &at(WIDGETS, "/w/status"), json!({ "status": null })),
            delete(&at(WIDGETS, "/w/status")),
            get(&at(MAPS, "/w/status")),
        ],
    )
}

fn versions() -> Script {
    let beta = "/apis/example.com/v1beta1/namespaces/{ns}/widgets";
    script(
        "versions",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            get(&at(beta, "/w")),
            get(beta),
            post(
                beta,
                json!({ "apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": { "name": "b" }, "spec": { "size": 1 } }),
            ),
            get(&at(WIDGETS, "/b")),
            get(&at(beta, "?watch=true&timeoutSeconds=1")),
        ],
    )
}

fn applied(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

fn applies() -> Script {
    let one =
        |query: &str, data: Value| patch("apply", &at(MAPS, &format!("/a?{query}")), applied("a", data));
    script(
        "applies",
        vec![
            one("fieldManager=one", json!({ "x": "1", "y": "1" })),
            one("fieldManager=one", json!({ "x": "1", "y": "1" })),
            one("fieldManager=two", json!({ "z": "1" })),
            one("fieldManager=two", json!({ "x": "2", "z": "1" })),
            one("fieldManager=two&force=true", json!({ "x": "2", "z": "1" })),
            // Shared while equal.
            one("fieldManager=one", json!({ "x": "2", "y": "1" })),
            // Dropped by its only owner, kept by the other one.
            one("fieldManager=one", json!({ "x": "2" })),
            one("fieldManager=two", json!({ "z": "1" })),
            patch("merge", &at(MAPS, "/a"), json!({ "data": { "x": "3" } })),
            one("fieldManager=one", json!({ "x": "2" })),
            one("fieldManager=one&force=true", json!({ "x": "2" })),
            post(MAPS, map("b")),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one"),
                applied("b", json!({ "key": "other" })),
            ),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one"),
                applied("b", json!({ "key": "value" })),
            ),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one&force=true"),
                applied("b", json!({ "key": "other" })),
            ),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one"),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b", "labels": { "mine": "1" } } }),
            ),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one"),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b" } }),
            ),
        ],
    )
}

fn apply_custom() -> Script {
    let one = |manager: &str, spec: Value| {
        patch(
            "apply",
            &at(WIDGETS, &format!("/w?fieldManager={manager}")),
            widget("w", spec),
        )
    };
    script(
        "apply_custom",
        vec![
            one(
                "one",
                json!({ "size": 1, "parts": [{ "name": "a", "count": 1 }], "tags": ["x"], "words": ["p", "q"] }),
            ),
            one(
                "two",
                json!({ "size": 1, "parts": [{ "name": "b", "count": 2 }], "tags": ["y"] }),
            ),
            one(
                "two",
                json!({ "size": 1, "parts": [{ "name": "a", "count": 2 }] }),
            ),
            one("two", json!({ "size": 1, "words": ["r"] })),
            one("one", json!({ "size": 1, "parts": [], "words": ["q"] })),
            one("one", json!({ "size": 1, "more": { "a": "1", "b": "2" } })),
            one("one", json!({ "size": 1, "more": { "b": "2" } })),
            one("two", json!({ "size": 1 })),
            one("one", json!({})),
            patch(
                "apply",
                &at(WIDGETS, "/w/status?fieldManager=three"),
                json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "status": { "ready": true } }),
            ),
            patch(
                "apply",
                &at(WIDGETS, "/w/status?fieldManager=four"),
                json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "status": { "ready": false } }),
            ),
            patch(
                "apply",
                &at(WIDGETS, "/none/status?fieldManager=four"),
                json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "none" }, "status": { "ready": false } }),
            ),
        ],
    )
}

fn apply_refused() -> Script {
    script(
        "apply_refused",
        vec![
            patch("apply", &at(MAPS, "/a"), applied("a", json!({}))),
            patch(
                "apply",
                &at(MAPS, "/a?fieldManager=one"),
                json!({ "metadata": { "name": "a" } }),
            ),
            patch("apply", &at(MAPS, "/a?fieldManager=one"), applied("b", json!({}))),
            patch(
                "apply",
                &at(MAPS, "/a?fieldManager=one"),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "managedFields": [{}] } }),
            ),
            patch("apply", &at(MAPS, "/a?fieldManager=one"), applied("a", json!({}))),
            patch(
                "apply",
                &at(MAPS, "/a?fieldManager=one"),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": "1" } }),
            ),
            patch(
                "apply",
                &at(MAPS, "/a?fieldManager=one"),
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "other" } }),
            ),
            patch(
                "apply",
                &at(WIDGETS, "/w?fieldManager=one"),
                widget("w", json!({})),
            ),
        ],
    )
}

fn forms() -> Script {
    script(
        "forms",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            post(MAPS, map("a")),
            get(&at(WIDGETS, "/w")).accept(TABLE),
            get(WIDGETS).accept(TABLE),
            get(&at(WIDGETS, "?includeObject=None")).accept(TABLE),
            get(&at(WIDGETS, "?includeObject=Object")).accept(TABLE),
            get(&at(WIDGETS, "?includeObject=Bad")).accept(TABLE),
            get(&at(WIDGETS, "/w")).accept(META),
            get(WIDGETS).accept(METAS),
            get(&at(MAPS, "/a")).accept(META),
            get(MAPS).accept(METAS),
            get(MAPS).accept(META),
            get(&at(WIDGETS, "/w")).accept(METAS),
            get(&at(WIDGETS, "?labelSelector=none")).accept(METAS),
            get(&at(MAPS, "?labelSelector=none")).accept(METAS),
            get(&at(WIDGETS, "?labelSelector=none")).accept(TABLE),
            get(&at(WIDGETS, "?labelSelector=none")),
            get(MAPS).accept(&format!("{METAS},application/json")),
            get(MAPS).accept("application/json;as=Foo;v=v1;g=meta.k8s.io,application/json"),
            get(MAPS).accept("application/json;as=Foo;v=v1;g=meta.k8s.io"),
            get(MAPS).accept("text/html"),
            get(MAPS).accept("text/html,*/*"),
            get(MAPS).accept("application/json;q=0.5"),
            get(&at(WIDGETS, "/nope")).accept(TABLE),
            patch("merge", &at(WIDGETS, "/w"), json!({ "spec": { "size": 2 } })).accept(META),
            post(MAPS, map("b")).accept(META),
        ],
    )
}

fn discovery() -> Script {
    script(
        "discovery",
        vec![
            get("/apis/example.com"),
            get("/apis/apps"),
            get("/apis/autoscaling"),
            get("/apis/nope.example.com"),
            get("/apis/nope.example.com/v1"),
            get("/apis/apps/v9"),
            get("/readyz"),
            get("/livez"),
            get("/healthz"),
            get("/readyz/ping"),
        ],
    )
}

fn refused_paths() -> Script {
    script(
        "refused_paths",
        vec![
            get("/api/v1/nopes"),
            get("/api/v1/namespaces/{ns}/nopes"),
            get("/apis/nope.example.com/v1/things"),
            get("/apis/apps/v1/nope"),
            get("/apis/example.com/v1/nope"),
            get("/apis/example.com/v9/widgets"),
            get("/foo"),
            get("/api/v1/configmaps/a"),
            get("/apis/example.com/v1/widgets/w"),
            get("/api/v1/namespaces/{ns}/nodes"),
            delete("/api/v1/configmaps"),
            delete("/apis/example.com/v1/widgets?fieldSelector=metadata.name%3Dnone"),
            raw(Method::PATCH, MAPS, "{}"),
            raw(Method::PATCH, WIDGETS, "{}"),
            raw(
                Method::POST,
                "/apis/example.com/v1/namespaces/{ns}/widgets/w",
                "{}",
            ),
            raw(Method::PUT, WIDGETS, "{}"),
            raw(Method::PUT, "/apis/example.com/v1/widgets", "{}"),
            raw(Method::OPTIONS, MAPS, ""),
            get("/api/v1/namespaces/{ns}/configmaps/a/b/c"),
        ],
    )
}

fn users() -> Script {
    let deployment = "/apis/apps/v1/namespaces/{ns}/deployments/x/status";
    script(
        "users",
        vec![
            post(MAPS, map("a")),
            get(MAPS).by("bob"),
            get(&at(MAPS, "/a")).by("bob"),
            get("/api/v1/configmaps?fieldSelector=metadata.namespace={ns}").by("bob"),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1")).by("bob"),
            post(MAPS, map("b")).by("bob"),
            delete(&at(MAPS, "/a")).by("bob"),
            delete(MAPS).by("bob"),
            put(&at(MAPS, "/a"), map("a")).by("bob"),
            patch("merge", &at(MAPS, "/a"), json!({})).by("bob"),
            get("/api/v1/nodes").by("bob"),
            get(deployment).by("bob"),
            patch("merge", &at(WIDGETS, "/w/status"), json!({})).by("bob"),
            get(&at(WIDGETS, "?watch=true")).by("bob"),
            get(&at(WIDGETS, "?fieldSelector=metadata.name%3Dw")).by("bob"),
            get("/foo").by("bob"),
            get("/apis/apps").by("bob"),
            get("/api/v1/nopes").by("bob"),
            get("/apis/nope.example.com/v1/things").by("bob"),
            get("/readyz").by("bob"),
            get("/metrics").by("bob"),
            get(MAPS).by("wrong"),
            get("/version").by("wrong"),
            get(MAPS).by("nobody"),
            get("/api").by("nobody"),
            get("/readyz").by("nobody"),
            get(&at(MAPS, "/a")).header("impersonate-user", "bob"),
            delete(&at(MAPS, "/a")).header("impersonate-user", "bob"),
            get("/api/v1/nodes").header("impersonate-user", "eve"),
        ],
    )
}

fn namespaces() -> Script {
    let other = "/api/v1/namespaces/{ns}-other";
    script(
        "namespaces",
        vec![
            post(
                "/api/v1/namespaces",
                json!({ "metadata": { "name": "{ns}-other" } }),
            ),
            patch("merge", other, json!({ "metadata": { "labels": { "a": "b" } } })),
            get(&at(other, "/status")),
            patch(
                "merge",
                other,
                json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
            ),
            delete(other),
            delete(other),
            post(&at(other, "/configmaps"), map("late")),
            get(&at(other, "/configmaps")),
            put(
                &at(other, "/finalize"),
                json!({ "metadata": { "name": "{ns}-other" }, "spec": {} }),
            ),
            get(other),
            patch("merge", other, json!({ "metadata": { "finalizers": null } })),
            get(other),
            delete("/api/v1/namespaces/default"),
            post(
                "/api/v1/namespaces",
                json!({ "metadata": { "name": "{ns}.bad" } }),
            ),
        ],
    )
}

fn built_ins() -> Script {
    let secrets = "/api/v1/namespaces/{ns}/secrets";
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
    script(
        "built_ins",
        vec![
            post(
                secrets,
                json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } }),
            ),
            patch("merge", &at(secrets, "/s"), json!({ "stringData": { "c": "d" } })),
            post(
                roles,
                json!({ "metadata": { "name": "system:with:colons" }, "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] }),
            ),
            post(
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
                json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "x", "leaseDurationSeconds": 15 } }),
            ),
            get("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"),
            delete("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/l"),
            get("/apis/apps/v1/namespaces/{ns}/deployments"),
            get("/api/v1/namespaces/{ns}/pods"),
        ],
    )
}

fn definitions() -> Script {
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut gadget = crd();
    gadget["metadata"]["name"] = "gadgets.things.example.com".into();
    gadget["spec"]["group"] = "things.example.com".into();
    gadget["spec"]["names"] = json!({ "plural": "gadgets", "kind": "Gadget" });
    let mut wrong = gadget.clone();
    wrong["metadata"]["name"] = "other.things.example.com".into();
    let one = at(crds, "/gadgets.things.example.com");
    let gadgets = "/apis/things.example.com/v1/namespaces/{ns}/gadgets";
    script(
        "definitions",
        vec![
            post(crds, wrong),
            get(gadgets),
            post(crds, gadget).quietly(),
            get(&at(MAPS, "?watch=true&timeoutSeconds=2&resourceVersion=99999999")),
            get("/apis/things.example.com"),
            get(gadgets),
            post(
                gadgets,
                json!({ "apiVersion": "things.example.com/v1", "kind": "Gadget", "metadata": { "name": "g" }, "spec": { "size": 1 } }),
            ),
            get(gadgets),
            get(&at(&one, "/status")).quietly(),
            delete(&one).quietly(),
            get(&at(MAPS, "?watch=true&timeoutSeconds=3&resourceVersion=99999999")),
            get(gadgets),
            get("/apis/things.example.com"),
            get(&one),
        ],
    )
}

fn pods() -> Script {
    let pods = "/api/v1/namespaces/{ns}/pods";
    let bound = json!({
        "metadata": { "name": "p" },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    });
    let free =
        json!({ "metadata": { "name": "f" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    script(
        "pods",
        vec![
            // Defaults of pods are not simulated: their names and deletion are looked at.
            post(pods, free).accept(META).unmanaged(),
            delete(&at(pods, "/f")).accept(META).unmanaged(),
            get(&at(pods, "/f")),
            post(pods, bound).accept(META).unmanaged(),
            delete(&at(pods, "/p")).accept(META).unmanaged(),
            get(&at(pods, "/p")).accept(META).unmanaged(),
            get(&at(pods, "?fieldSelector=spec.nodeName%3Dn"))
                .accept(METAS)
                .unmanaged(),
            get(&at(pods, "?fieldSelector=spec.nodeName%3Dm"))
                .accept(METAS)
                .unmanaged(),
            get(&at(pods, "?fieldSelector=status.phase%3DPending"))
                .accept(METAS)
                .unmanaged(),
            get(&at(pods, "?fieldSelector=spec.foo%3Dm"))
                .accept(METAS)
                .unmanaged(),
            delete_with(&at(pods, "/p"), json!({ "gracePeriodSeconds": 0 }))
                .accept(META)
                .unmanaged(),
            get(&at(pods, "/p")),
        ],
    )
}

fn scale() -> Script {
    let deployments = "/apis/apps/v1/namespaces/{ns}/deployments";
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    script(
        "scale",
        vec![
            post(deployments, json!({ "metadata": { "name": "d" }, "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } }, "template": template } })).accept(META).quietly(),
            get(&at(deployments, "/d/scale")),
            patch("merge", &at(deployments, "/d/scale"), json!({ "spec": { "replicas": 3 } })),
            get(&at(deployments, "/d/scale")),
            get(&at(deployments, "/e/scale")),
            patch("merge", &at(deployments, "/d/status"), json!({ "status": { "replicas": 2 } })).accept(META).quietly(),
            get(&at(deployments, "/d/scale")),
        ],
    )
}

fn dry_run() -> Script {
    script(
        "dry_run",
        vec![
            post(&at(MAPS, "?dryRun=All"), map("a")),
            get(&at(MAPS, "/a")),
            post(&at(MAPS, "?dryRun=Foo"), map("a")),
            post(MAPS, map("b")),
            delete(&at(MAPS, "/b?dryRun=All")),
            get(&at(MAPS, "/b")),
            patch(
                "apply",
                &at(MAPS, "/c?fieldManager=m&dryRun=All"),
                applied("c", json!({ "a": "b" })),
            ),
            get(&at(MAPS, "/c")),
        ],
    )
}

fn reviews() -> Script {
    let access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = |verb: &str, resource: &str| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": verb, "resource": resource } },
        })
    };
    let bare = |mut step: Step| {
        step = step.by("bob");
        step
    };
    script(
        "reviews",
        vec![
            bare(post(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }),
            )),
            bare(post(access, ask("delete", "pods"))),
            post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).by("nobody"),
            get("/apis/authentication.k8s.io/v1/selfsubjectreviews"),
            delete("/apis/authentication.k8s.io/v1/selfsubjectreviews/x"),
        ],
    )
}

/// Cuts history for all others, so it has servers of its own.
pub(crate) fn compaction() -> Vec<Script> {
    vec![script(
        "compaction",
        vec![
            post(MAPS, map("a")).save("rv", "/metadata/resourceVersion"),
            post(MAPS, map("b")),
            post(MAPS, map("c")),
            get(&at(MAPS, "?limit=1")).save("token", "/metadata/continue"),
            post(MAPS, map("d")),
            delete(&at(MAPS, "/b")),
            compact(),
            get(&at(MAPS, "?limit=1&continue={token}")).save("next", "/metadata/continue"),
            get(&at(MAPS, "?limit=5&continue={next}")),
            get(&at(MAPS, "?resourceVersion={rv}&resourceVersionMatch=Exact")),
            get(MAPS),
        ],
    )]
}
