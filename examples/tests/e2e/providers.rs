//! One example with each provider that has real clusters.

use mcr_testkit::e2e::{
    E2e,
    E2eCluster::{Alpha, Beta},
};
use serde_json::{Value, json};

use crate::{
    cluster::{member, on_kind},
    common::member::{create, delete, unique},
    program::Program,
};

fn says(cluster: &str, namespace: &str, name: &str, event: &str) -> impl Fn(&Value) -> bool {
    let wanted = json!({"cluster": cluster, "namespace": namespace, "name": name, "event": event});
    move |line| *line == wanted
}

/// A ConfigMap comes and goes in each of two clusters, and the program says so.
async fn sees(e2e: &E2e, program: &Program, alpha: &str, beta: &str) {
    for (cluster, name) in [(Alpha, alpha), (Beta, beta)] {
        let namespace = e2e.namespace(cluster, "sees").await;
        let maps = member(e2e, cluster).await.maps(namespace.name());
        create(&maps, json!({"metadata": {"name": "seen"}})).await;
        program.line("a new object", says(name, namespace.name(), "seen", "live"));
        delete(&maps, "seen").await;
        program.line("a deletion", says(name, namespace.name(), "seen", "deleted"));
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

#[test]
fn namespace_takes_each_namespace_for_a_cluster() {
    on_kind(|e2e| async move {
        let alpha = e2e.kubeconfig(Alpha);
        let namespace = e2e.namespace(Alpha, "as-cluster").await;
        let program = Program::start("namespace", ["--hub-kubeconfig", alpha.to_str().unwrap()]);
        let (here, name) = (member(&e2e, Alpha).await, unique("animal"));
        create(
            &here.maps(namespace.name()),
            json!({"metadata": {"name": name, "labels": {"type": "animal"}}}),
        )
        .await;
        program.line("an animal", says(namespace.name(), "default", &name, "live"));
        program.interrupt();
        for zoo in ["zoo", "jungle", "island"] {
            delete(&here.namespaces(), zoo).await;
        }
        namespace.remove().await;
    });
}
