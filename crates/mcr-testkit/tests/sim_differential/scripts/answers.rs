use super::*;

pub(super) fn forms() -> Script {
    script(
        "forms",
        vec![
            post(WIDGETS, widget("w", json!({ "size": 1 }))),
            post(MAPS, map("a")),
            get(&at(WIDGETS, "/w")).accept(TABLE),
            get(WIDGETS).accept(TABLE),
            get(&at(WIDGETS, "?includeObject=None")).accept(TABLE),
            get(&at(WIDGETS, "?includeObject=Object")).accept(TABLE),
            get(&at(WIDGETS, "/w")).accept(META),
            get(WIDGETS).accept(METAS),
            get(&at(MAPS, "/a")).accept(META),
            get(MAPS).accept(METAS),
            get(MAPS).accept(META),
            get(&at(WIDGETS, "/w")).accept(METAS),
            get(&at(MAPS, "?labelSelector=none")).accept(METAS),
            get(&at(WIDGETS, "?labelSelector=none")).accept(TABLE),
            get(&at(WIDGETS, "?labelSelector=none")),
            get(MAPS).accept(&format!("{METAS},application/json")),
            get(MAPS).accept("application/json;as=Foo;v=v1;g=meta.k8s.io,application/json"),
            get(MAPS).accept("application/json;as=Foo;v=v1;g=meta.k8s.io"),
            get(MAPS).accept("text/html"),
            get(&at(WIDGETS, "/nope")).accept(TABLE),
            patch("merge", &at(WIDGETS, "/w"), json!({ "spec": { "size": 2 } })).accept(META),
            post(MAPS, map("b")).accept(META),
        ],
    )
}

pub(super) fn discovery() -> Script {
    script(
        "discovery",
        vec![
            get("/apis/example.com"),
            get("/apis/apps"),
            get("/apis/autoscaling"),
            get("/apis/nope.example.com"),
            get("/apis/apps/v9"),
            get("/readyz"),
        ],
    )
}

pub(super) fn refused_paths() -> Script {
    script(
        "refused_paths",
        vec![
            get("/api/v1/nopes"),
            get("/apis/nope.example.com/v1/things"),
            get("/apis/example.com/v1/nope"),
            get("/foo"),
            get("/api/v1/configmaps/a"),
            get("/api/v1/namespaces/{ns}/nodes"),
            delete("/api/v1/configmaps"),
            delete("/apis/example.com/v1/widgets?fieldSelector=metadata.name%3Dnone"),
            raw(Method::PATCH, MAPS, "{}"),
            raw(Method::OPTIONS, MAPS, ""),
        ],
    )
}

pub(super) fn users() -> Script {
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
        ],
    )
}

pub(super) fn reviews() -> Script {
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
