use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use mcr_testkit::e2e::E2eCluster::{Alpha, Beta};
use serde_json::{Value, json};

use crate::{
    cluster::{member, on_kind},
    common::member::{create, edit, eventually},
    program::Program,
};

fn counted(map: Option<&ConfigMap>) -> Option<&str> {
    map?.annotations().get("example.io/entries").map(String::as_str)
}

#[test]
fn uniform_runs_the_plain_reconciler_in_every_cluster() {
    on_kind(|e2e| async move {
        let program = Program::start(
            "uniform",
            ["--kubeconfigs", e2e.all_kubeconfig().to_str().unwrap()],
        );
        for cluster in [Alpha, Beta] {
            let namespace = e2e.namespace(cluster, "uniform").await;
            let maps = member(&e2e, cluster).await.maps(namespace.name());
            for (name, label) in [("counted", "true"), ("other", "false")] {
                let labels = json!({"example.io/count": label});
                create(
                    &maps,
                    json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}),
                )
                .await;
            }
            let name = cluster.context();
            program.line("a count", |line| {
                line["cluster"] == name && line["namespace"] == namespace.name() && line["entries"] == 1
            });
            eventually(&maps, "counted", "the annotation", |map| {
                counted(map) == Some("1")
            })
            .await;
            edit(&maps, "counted", json!({"data": {"b": "2"}})).await;
            eventually(&maps, "counted", "the new count", |map| counted(map) == Some("2")).await;
            assert_eq!(counted(Some(&maps.get("other").await.unwrap())), None);
            namespace.remove().await;
        }
        program.interrupt();
    });
}
