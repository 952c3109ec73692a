//! Whole stories about one example, on real API servers.

use serde_json::json;

use crate::{
    clusters::{member, on_clusters},
    common::{
        baseline_rbac, fleet_policy,
        member::{create, delete, eventually, unique},
        sync, uniform,
    },
    program::Program,
};

#[test]
fn a_baseline_is_kept_in_every_cluster_and_what_leaves_it_is_deleted() {
    on_clusters(|clusters| async move {
        baseline_rbac::story(&member(&clusters.berlin), &member(&clusters.lyon)).await;
    });
}

#[test]
fn a_policy_is_kept_in_every_cluster_and_given_up_where_it_is_not_meant() {
    on_clusters(|clusters| async move {
        fleet_policy::story(&member(&clusters.berlin), &member(&clusters.lyon)).await;
    });
}

#[test]
fn copies_follow_their_originals_and_nothing_else_is_touched() {
    on_clusters(|clusters| async move {
        let members = [&clusters.hub, &clusters.berlin, &clusters.lyon].map(member);
        sync::story(&members[0], &members[1], &members[2]).await;
    });
}

#[test]
fn the_plain_reconciler_works_on_every_cluster_and_in_kube_rs_own_controller() {
    on_clusters(|clusters| async move {
        uniform::story([&member(&clusters.berlin), &member(&clusters.lyon)]).await;
        let (folder, id, hub) = (
            tempfile::tempdir().unwrap(),
            unique("plain"),
            member(&clusters.hub),
        );
        hub.namespace(&id, json!({})).await;
        let metadata = json!({"name": "counted", "labels": {"example.io/count": "true"}});
        create(&hub.maps(&id), json!({"metadata": metadata, "data": {"a": ""}})).await;
        let kubeconfig = hub.join(folder.path());
        let program = Program::start_with("uniform", ["--plain"], [("KUBECONFIG", kubeconfig)]);
        eventually(&hub.maps(&id), "counted", "the annotation", |map| {
            uniform::counted(map) == Some("1")
        })
        .await;
        program.interrupt();
        delete(&hub.namespaces(), &id).await;
    });
}
