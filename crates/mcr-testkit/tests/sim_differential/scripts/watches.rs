use super::*;

pub(super) fn watch_state() -> Script {
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
        "&resourceVersion=99999999",
        "&resourceVersionMatch=NotOlderThan",
        "&sendInitialEvents=true",
        "&allowWatchBookmarks=true",
        "&allowWatchBookmarks=true&resourceVersion=0",
        "&allowWatchBookmarks=true&resourceVersion=1",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=1",
        "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    ] {
        steps.push(get(&at(MAPS, &format!("?watch=true&timeoutSeconds=1{query}"))));
    }
    script("watch_state", steps)
}

pub(super) fn watch_history() -> Script {
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

pub(super) fn watch_selected() -> Script {
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

pub(super) fn watch_live() -> Script {
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
            // Nothing changes, nothing is sent.
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

pub(super) fn watch_streaming() -> Script {
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

pub(super) fn watch_forms() -> Script {
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
