use super::*;

pub(super) fn custom() -> Script {
    let replace = |body: Value| put(&at(WIDGETS, "/w"), body);
    let merge = |body: Value| patch("merge", &at(WIDGETS, "/w"), body);
    script("custom", vec![
        post(WIDGETS, json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
            "spec": { "size": 1, "junk": 2, "parts": [{ "name": "p", "count": 1, "junk": 1 }], "free": { "any": [1] }, "more": { "a": "b" } },
            "status": { "ready": true }, "extra": 1,
        })).save("rv", "/metadata/resourceVersion"),
        get(&at(WIDGETS, "/w")),
        get(WIDGETS),
        replace(widget("w", json!({ "size": 2 }))),
        replace(json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "resourceVersion": "{rv}" }, "spec": { "size": 2, "color": "blue" } })),
        replace(json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "resourceVersion": "{rv}" }, "spec": { "size": 3 } })),
        put(&at(WIDGETS, "/zz"), json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "zz", "resourceVersion": "1" }, "spec": { "size": 3 } })),
        merge(json!({ "spec": { "size": 3 } })),
        merge(json!({ "metadata": { "labels": { "a": "b" } } })),
        merge(json!({ "spec": { "color": null } })),
        patch("json", &at(WIDGETS, "/w"), json!([{ "op": "replace", "path": "/spec/size", "value": 5 }])),
        get(&at(WIDGETS, "/w/scale")),
        get(&at(WIDGETS, "/w/foo")),
        delete(&at(WIDGETS, "/w")),
        delete(&at(WIDGETS, "/w")),
        delete(WIDGETS),
        get("/apis/example.com/v1/widgets?fieldSelector=metadata.namespace={ns}"),
    ])
}

pub(super) fn custom_refused() -> Script {
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

pub(super) fn status() -> Script {
    let merge = |body: Value| patch("merge", &at(WIDGETS, "/w/status"), body);
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
            merge(json!({ "status": { "ready": false }, "spec": { "size": 99 } })),
            merge(json!({ "status": { "ready": false } })),
            get(&at(WIDGETS, "/w/status")),
            get(&at(WIDGETS, "/nope/status")),
            merge(json!({ "status": null })),
            delete(&at(WIDGETS, "/w/status")),
            get(&at(MAPS, "/w/status")),
        ],
    )
}

pub(super) fn versions() -> Script {
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

pub(super) fn definitions() -> Script {
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
