use super::applying::applied;
use super::*;

pub(super) fn create() -> Script {
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

pub(super) fn update() -> Script {
    let replace = |body: Value| put(&at(MAPS, "/a"), body);
    script(
        "update",
        vec![
            post(MAPS, map("a"))
                .save("rv", "/metadata/resourceVersion")
                .save("uid", "/metadata/uid"),
            put(MAPS, map("a")),
            put(&at(MAPS, "/zz"), map("zz")),
            put(&at(MAPS, "/zz"), map("b")),
            replace(json!({ "metadata": {} })),
            replace(json!({ "metadata": { "name": "a", "resourceVersion": "1" } })),
            replace(json!({ "metadata": { "name": "a", "resourceVersion": "abc" } })),
            replace(json!({ "metadata": { "name": "a", "uid": "xyz" } })),
            replace(
                json!({ "metadata": { "name": "a", "resourceVersion": "{rv}", "uid": "{uid}" }, "data": { "key": "w" } }),
            ),
            replace(
                json!({ "metadata": { "name": "a", "resourceVersion": "{rv}" }, "data": { "key": "x" } }),
            ),
            // Unconditional, then one that changes nothing.
            replace(map("a")),
            replace(map("a")),
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

pub(super) fn remove() -> Script {
    let remove = |body: Value| delete_with(&at(MAPS, "/a"), body);
    script(
        "remove",
        vec![
            delete(&at(MAPS, "/zz")),
            post(MAPS, map("a"))
                .save("rv", "/metadata/resourceVersion")
                .save("uid", "/metadata/uid"),
            remove(json!({ "preconditions": { "uid": "x" } })),
            remove(json!({ "preconditions": { "resourceVersion": "1" } })),
            remove(
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

pub(super) fn finalizers() -> Script {
    let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } });
    let merge = |body: Value| patch("merge", &at(MAPS, "/a"), body);
    script(
        "finalizers",
        vec![
            post(MAPS, held).save("rv", "/metadata/resourceVersion"),
            delete(&at(MAPS, "/a")),
            delete(&at(MAPS, "/a")),
            merge(json!({ "data": { "still": "writable" } })),
            merge(json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/new"] } })),
            merge(json!({ "metadata": { "finalizers": null } })),
            get(&at(MAPS, "/a")),
            get(&at(MAPS, "?watch=true&timeoutSeconds=1&resourceVersion={rv}")),
            post(MAPS, map("f")),
            delete(&at(MAPS, "/f")),
            post(MAPS, map("o")),
            delete(&at(MAPS, "/o")),
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

pub(super) fn namespaces() -> Script {
    let other = "/api/v1/namespaces/{ns}-other";
    let merge = |body: Value| patch("merge", other, body);
    script(
        "namespaces",
        vec![
            post(
                "/api/v1/namespaces",
                json!({ "metadata": { "name": "{ns}-other" } }),
            ),
            merge(json!({ "metadata": { "labels": { "a": "b" } } })),
            get(&at(other, "/status")),
            merge(json!({ "metadata": { "finalizers": ["example.com/hold"] } })),
            delete(other),
            delete(other),
            post(&at(other, "/configmaps"), map("late")),
            get(&at(other, "/configmaps")),
            put(
                &at(other, "/finalize"),
                json!({ "metadata": { "name": "{ns}-other" }, "spec": {} }),
            ),
            get(other),
            merge(json!({ "metadata": { "finalizers": null } })),
            get(other),
            delete("/api/v1/namespaces/default"),
            post(
                "/api/v1/namespaces",
                json!({ "metadata": { "name": "{ns}.bad" } }),
            ),
        ],
    )
}

pub(super) fn built_ins() -> Script {
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

pub(super) fn dry_run() -> Script {
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
