use k8s_openapi::api::core::v1::ConfigMap;
use mcr_testkit::e2e::E2eCluster::{Alpha, Beta, Hub};
use serde_json::{Value, json};

use crate::{
    cluster::{member, on_kind},
    common::member::{create, delete, edit, eventually},
    program::Program,
};

fn entry(map: Option<&ConfigMap>) -> Option<&str> {
    map?.data.as_ref()?.get("key").map(String::as_str)
}

#[test]
fn sync_local_to_remote_copies_from_the_hub() {
    on_kind(|e2e| async move {
        let namespace = e2e.namespace(Hub, "sync").await;
        let name = namespace.name();
        let (hub, alpha, beta) = (
            member(&e2e, Hub).await,
            member(&e2e, Alpha).await,
            member(&e2e, Beta).await,
        );
        let says = |context: &'static str, event: &'static str| {
            let name = name.to_owned();
            move |line: &Value| {
                line["cluster"] == context && line["namespace"] == name && line["event"] == event
            }
        };
        let folder = tempfile::tempdir().unwrap();
        alpha.join(folder.path());
        let original = json!({"metadata": {"name": "settings", "labels": {"example.io/propagate": "true"}}, "data": {"key": "1"}});
        create(&hub.maps(name), original).await;
        let program = Program::start(
            "sync-local-to-remote",
            [
                "--hub-kubeconfig",
                e2e.kubeconfig(Hub).to_str().unwrap(),
                "--kubeconfig-dirs",
                folder.path().to_str().unwrap(),
            ],
        );
        program.line("a copy", says(Alpha.context(), "copied"));
        beta.join(folder.path());
        program.line(
            "a copy in the cluster that joined",
            says(Beta.context(), "copied"),
        );

        edit(&hub.maps(name), "settings", json!({"data": {"key": "2"}})).await;
        for member in [&alpha, &beta] {
            let maps = member.maps(name);
            eventually(&maps, "settings", "the update", |map| entry(map) == Some("2")).await;
            edit(&maps, "settings", json!({"data": {"key": "drift"}})).await;
            eventually(&maps, "settings", "the drift", |map| entry(map) == Some("2")).await;
            delete(&maps, "settings").await;
            eventually(&maps, "settings", "the copy again", |map| entry(map) == Some("2")).await;
        }
        delete(&hub.maps(name), "settings").await;
        for member in [&alpha, &beta] {
            eventually(&member.maps(name), "settings", "no copy", |map| map.is_none()).await;
        }
        program.interrupt();
        for member in [&alpha, &beta] {
            delete(&member.namespaces(), name).await;
        }
        namespace.remove().await;
    });
}
