use super::*;

pub(super) fn pages() -> Script {
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
        get(&at(MAPS, "?limit=2")).accept(METAS),
        post(WIDGETS, widget("a", json!({ "size": 1 }))),
        post(WIDGETS, widget("b", json!({ "size": 1 }))),
        get(&at(WIDGETS, "?limit=1")),
    ]);
    script("pages", steps)
}

pub(super) fn selectors() -> Script {
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
        "app=a,",
        "in",
        "app in",
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

pub(super) fn list_options() -> Script {
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
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersion=99999999&resourceVersionMatch=NotOlderThan",
        "resourceVersion=99999999",
        "resourceVersion=99999999&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "watch=false",
        "allowWatchBookmarks=true",
    ] {
        steps.push(get(&at(MAPS, &format!("?{query}"))));
    }
    script("list_options", steps)
}
