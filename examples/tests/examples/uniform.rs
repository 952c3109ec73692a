use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    clusters::{create, eventually, folder, kubeconfig, namespace, on_clusters, patch},
    program::Program,
};

fn counted(map: Option<&ConfigMap>) -> Option<&str> {
    map?.metadata
        .annotations
        .as_ref()?
        .get("example.io/entries")
        .map(String::as_str)
}

#[test]
fn the_plain_reconciler_works_on_every_cluster() {
    on_clusters(|clusters| async move {
        let folder = folder();
        let planes = [&clusters.berlin, &clusters.lyon];
        for plane in planes {
            kubeconfig(folder.path(), plane);
            namespace(plane, "uniform").await;
            create(plane, "uniform", "counted", ("example.io/count", "true")).await;
            create(plane, "uniform", "other", ("example.io/count", "false")).await;
        }
        let program = Program::start("uniform", ["--kubeconfig-dirs", folder.path().to_str().unwrap()]);
        for plane in planes {
            let cluster = plane.name();
            program.line("a first count", |line| {
                line["cluster"]
                    .as_str()
                    .is_some_and(|name| name.ends_with(&cluster))
                    && line["namespace"] == "uniform"
                    && line["name"] == "counted"
                    && line["entries"] == 1
            });
            eventually(plane, "uniform", "counted", "the annotation", |map| {
                counted(map) == Some("1")
            })
            .await;
            patch(
                plane,
                "uniform",
                "counted",
                json!({"data": {"more": "", "and more": null}}),
            )
            .await;
            eventually(plane, "uniform", "counted", "the new count", |map| {
                counted(map) == Some("2")
            })
            .await;
            eventually(plane, "uniform", "other", "no annotation", |map| {
                counted(map).is_none()
            })
            .await;
        }
        program.interrupt();
    });
}

#[test]
fn the_same_functions_run_in_kube_rs_own_controller() {
    on_clusters(|clusters| async move {
        let folder = folder();
        let plane = &clusters.hub;
        namespace(plane, "plain").await;
        create(plane, "plain", "counted", ("example.io/count", "true")).await;
        let kubeconfig = kubeconfig(folder.path(), plane);
        let program = Program::start_with("uniform", ["--plain"], [("KUBECONFIG", kubeconfig)]);
        program.line("a count", |line| {
            line["name"] == "counted" && line["namespace"] == "plain"
        });
        eventually(plane, "plain", "counted", "the annotation", |map| {
            counted(map) == Some("1")
        })
        .await;
        program.interrupt();
    });
}
