//! One example with each provider that has real clusters.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::Api;
use mcr_testkit::e2e::{
    E2e,
    E2eCluster::{Alpha, Beta, Hub},
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
fn configmaps_of_the_contexts_of_files() {
    on_kind(|e2e| async move {
        let file = e2e.all_kubeconfig();
        let file = file.to_str().unwrap();
        let program = Program::start("configmaps", ["--kubeconfigs", file]);
        sees(&e2e, &program, Alpha.context(), Beta.context()).await;
        program.interrupt();
    });
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
fn configmaps_of_clusters_in_secrets() {
    on_kind(|e2e| async move {
        let namespace = e2e.namespace(Hub, "secrets").await;
        let hub = e2e.kubeconfig(Hub);
        let secrets = Api::<Secret>::namespaced(e2e.client(Hub).await, namespace.name());
        let add = async |name: &str, cluster| {
            let kubeconfig = ByteString(member(&e2e, cluster).await.kubeconfig.into());
            let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
            let secret =
                json!({"metadata": {"name": name, "labels": labels}, "data": {"kubeconfig": kubeconfig}});
            create(&secrets, secret).await;
        };
        add("east", Alpha).await;
        let program = Program::start(
            "configmaps",
            [
                "--provider",
                "kubeconfig",
                "--hub-kubeconfig",
                hub.to_str().unwrap(),
                "--namespace",
                namespace.name(),
                "--allow-loopback",
            ],
        );
        // This one joins while it runs.
        add("west", Beta).await;
        sees(&e2e, &program, "east", "west").await;
        program.interrupt();
        namespace.remove().await;
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
        program.line("an animal", says(namespace.name(), namespace.name(), &name, "live"));
        program.interrupt();
        for zoo in ["zoo", "jungle", "island"] {
            delete(&here.namespaces(), zoo).await;
        }
        namespace.remove().await;
    });
}
