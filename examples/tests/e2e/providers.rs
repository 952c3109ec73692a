//! An example with the provider of kind clusters.

use mcr_testkit::e2e::{
    E2e,
    E2eCluster::{Alpha, Beta},
};
use serde_json::{Value, json};

use crate::{
    cluster::{member, on_kind},
    common::member::{create, delete},
    program::Program,
};

fn reports(cluster: &str, namespace: &str, name: &str, event: &str) -> impl Fn(&Value) -> bool {
    let wanted = json!({"cluster": cluster, "namespace": namespace, "name": name, "event": event});
    move |line| *line == wanted
}

/// A ConfigMap comes and goes in each of two clusters, and the program prints both.
async fn sees(e2e: &E2e, program: &Program, alpha: &str, beta: &str) {
    for (cluster, name) in [(Alpha, alpha), (Beta, beta)] {
        let namespace = e2e.namespace(cluster, "sees").await;
        let maps = member(e2e, cluster).await.maps(namespace.name());
        create(&maps, json!({"metadata": {"name": "seen"}})).await;
        program.line("a new object", reports(name, namespace.name(), "seen", "live"));
        delete(&maps, "seen").await;
        program.line("a deletion", reports(name, namespace.name(), "seen", "deleted"));
        namespace.remove().await;
    }
}

#[test]
fn configmaps_of_kind_clusters() {
    on_kind(|e2e| async move {
        let program = Program::start("configmaps", ["--provider", "kind", "--prefix", "fleet-"]);
        sees(&e2e, &program, Alpha.name(), Beta.name()).await;
        program.interrupt();
    });
}
