use super::*;

pub(super) fn applied(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

pub(super) fn applies() -> Script {
    let one =
        |query: &str, data: Value| patch("apply", &at(MAPS, &format!("/a?{query}")), applied("a", data));
    let apply = |body: Value| patch("apply", &at(MAPS, "/b?fieldManager=one"), body);
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
            apply(applied("b", json!({ "key": "other" }))),
            apply(applied("b", json!({ "key": "value" }))),
            patch(
                "apply",
                &at(MAPS, "/b?fieldManager=one&force=true"),
                applied("b", json!({ "key": "other" })),
            ),
            apply(
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b", "labels": { "mine": "1" } } }),
            ),
            apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b" } })),
        ],
    )
}

pub(super) fn apply_custom() -> Script {
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

pub(super) fn apply_refused() -> Script {
    let apply = |body: Value| patch("apply", &at(MAPS, "/a?fieldManager=one"), body);
    script(
        "apply_refused",
        vec![
            patch("apply", &at(MAPS, "/a"), applied("a", json!({}))),
            apply(json!({ "metadata": { "name": "a" } })),
            apply(applied("b", json!({}))),
            apply(
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "managedFields": [{}] } }),
            ),
            apply(applied("a", json!({}))),
            apply(
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": "1" } }),
            ),
            apply(
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
