use super::*;

pub(super) fn pods() -> Script {
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

pub(super) fn scale() -> Script {
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
