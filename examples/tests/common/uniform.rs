//! `uniform`: a reconciler written for kube-rs, in every cluster.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;

use super::{
    member::{Member, create, delete, edit, eventually, unique},
    program::Program,
};

pub(crate) fn counted(map: Option<&ConfigMap>) -> Option<&str> {
    map?.annotations().get("example.io/entries").map(String::as_str)
}

pub(crate) async fn story(members: [&Member; 2]) {
    let (folder, id) = (tempfile::tempdir().unwrap(), &unique("uniform"));
    for member in members {
        member.join(folder.path());
        member.namespace(id, json!({})).await;
        for (name, label) in [("counted", "true"), ("other", "false")] {
            let metadata = json!({"name": name, "labels": {"example.io/count": label}});
            create(&member.maps(id), json!({"metadata": metadata, "data": {"a": ""}})).await;
        }
    }
    let program = Program::start("uniform", ["--kubeconfig-dirs", folder.path().to_str().unwrap()]);
    for member in members {
        let maps = member.maps(id);
        program.line("a first count", |line| {
            line["cluster"] == *member.name
                && line["namespace"] == **id
                && line["name"] == "counted"
                && line["entries"] == 1
        });
        let first = |map: Option<&ConfigMap>| counted(map) == Some("1");
        eventually(&maps, "counted", "the annotation", first).await;
        edit(&maps, "counted", json!({"data": {"b": ""}})).await;
        let second = |map: Option<&ConfigMap>| counted(map) == Some("2");
        eventually(&maps, "counted", "the new count", second).await;
        assert_eq!(counted(Some(&maps.get("other").await.unwrap())), None);
    }
    program.interrupt();
    for member in members {
        delete(&member.namespaces(), id).await;
    }
}
