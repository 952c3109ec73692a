use super::*;

pub(super) fn patches() -> Script {
    let merge = |body: Value| patch("merge", &at(MAPS, "/a"), body);
    let json_patch = |body: Value| patch("json", &at(MAPS, "/a"), body);
    script(
        "patches",
        vec![
            post(MAPS, map("a")),
            merge(json!({ "data": { "key": null, "new": "1" }, "metadata": { "labels": null } })),
            merge(json!({ "metadata": { "resourceVersion": "1" } })),
            merge(json!({ "metadata": { "uid": "other" } })),
            merge(json!({ "metadata": { "name": "other" } })),
            merge(json!([1])),
            patch("merge", &at(MAPS, "/nope"), json!({})),
            merge(json!({})),
            json_patch(json!([{ "op": "add", "path": "/data/x", "value": "y" }])),
            json_patch(json!([{ "op": "test", "path": "/data/x", "value": "z" }])),
            json_patch(
                json!([{ "op": "test", "path": "/data/x", "value": "y" }, { "op": "move", "from": "/data/x", "path": "/data/moved" }]),
            ),
            json_patch(json!([{ "op": "remove", "path": "/data/nope" }])),
            json_patch(json!({ "op": "remove" })),
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

pub(super) fn strategic() -> Script {
    let accounts = "/api/v1/namespaces/{ns}/serviceaccounts";
    let strategic = |body: Value| patch("strategic", &at(MAPS, "/a"), body);
    script(
        "strategic",
        vec![
            post(MAPS, map("a")),
            strategic(json!({ "data": { "key": null, "z": "1" } })),
            strategic(json!({ "data": { "$patch": "replace", "only": "1" } })),
            strategic(json!({ "metadata": { "finalizers": ["example.com/a"] } })),
            strategic(json!({ "metadata": { "finalizers": ["example.com/b"] } })),
            strategic(json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/a"] } })),
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
