use super::*;

pub(super) fn patches() -> Script {
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

pub(super) fn strategic() -> Script {
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
