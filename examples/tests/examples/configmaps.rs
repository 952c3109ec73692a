use serde_json::{Value, json};

use crate::{
    clusters::{member, on_clusters},
    common::member::{create, delete, unique},
    program::{Program, run},
};

#[test]
fn prints_what_is_there_and_what_is_deleted_in_every_cluster_also_in_one_that_joins_later() {
    on_clusters(|clusters| async move {
        let (folder, id) = (tempfile::tempdir().unwrap(), unique("print"));
        let members = [&clusters.berlin, &clusters.lyon].map(member);
        for member in &members {
            member.namespace(&id, json!({})).await;
            create(&member.maps(&id), json!({"metadata": {"name": "first"}})).await;
        }
        let [berlin, lyon] = &members;
        let reports = |cluster: &str, name: &str, event: &str| {
            let wanted = json!({"cluster": cluster, "namespace": id, "name": name, "event": event});
            move |line: &Value| *line == wanted
        };
        // Files that don't exist yet, and empty strings in the list, do no harm.
        let late = folder.path().join("lyon.kubeconfig");
        let list = format!("{},,{}", berlin.join(folder.path()).display(), late.display());
        let program = Program::start("configmaps", ["--kubeconfigs", &list, "--globs", ""]);
        program.line("what is there", reports("berlin", "first", "live"));
        assert!(!program.lines().iter().any(|line| line["cluster"] == "lyon"));

        lyon.join(folder.path());
        program.line("the cluster that joins", reports("lyon", "first", "live"));
        create(&lyon.maps(&id), json!({"metadata": {"name": "second"}})).await;
        program.line("a new object", reports("lyon", "second", "live"));
        delete(&berlin.maps(&id), "first").await;
        program.line("a deletion", reports("berlin", "first", "deleted"));

        std::fs::remove_file(late).unwrap();
        program.logged("cluster is gone", 1);
        for line in program.interrupt() {
            let deleted = line["event"] == "deleted" && line["namespace"] == id.as_str();
            assert!(
                !deleted || line["cluster"] == "berlin",
                "leaving is no deletion: {line}"
            );
        }
    });
}

#[test]
fn runs_on_the_one_cluster_of_a_kubeconfig() {
    on_clusters(|clusters| async move {
        let folder = tempfile::tempdir().unwrap();
        let hub = member(&clusters.hub).join(folder.path());
        let args = "--provider single --count 1 --exit-after 40 --hub-kubeconfig";
        let output = run("configmaps", args.split(' ').chain([hub.to_str().unwrap()]));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(
            text.lines().count() == 1 && text.starts_with("live     local  "),
            "{text}"
        );
    });
}

#[cfg(feature = "kubeconfig")]
#[test]
fn clusters_come_from_secrets_and_lead_to_this_machine_only_if_that_is_allowed() {
    use k8s_openapi::api::core::v1::Secret;

    on_clusters(|clusters| async move {
        let (folder, id) = (tempfile::tempdir().unwrap(), unique("secrets"));
        let (hub, berlin) = (member(&clusters.hub), member(&clusters.berlin));
        let path = hub.join(folder.path());
        for member in [&hub, &berlin] {
            member.namespace(&id, json!({})).await;
        }
        create(&berlin.maps(&id), json!({"metadata": {"name": "seen"}})).await;
        let args = format!(
            "--provider kubeconfig --namespace {id} --hub-kubeconfig {}",
            path.display()
        );
        let program = Program::start("configmaps", format!("{args} --allow-loopback").split(' '));
        let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
        let metadata = json!({"name": "east", "labels": labels});
        let secrets = kube::Api::<Secret>::namespaced(hub.client.clone(), &id);
        create(
            &secrets,
            json!({"metadata": metadata, "stringData": {"kubeconfig": berlin.kubeconfig}}),
        )
        .await;
        program.line("seen", |line: &Value| {
            line["cluster"] == "east" && line["namespace"] == *id && line["name"] == "seen"
        });
        program.interrupt();

        let refused = run("configmaps", format!("{args} --exit-after 3").split(' '));
        let log = String::from_utf8(refused.stderr).unwrap();
        assert!(
            log.contains("untrusted access may not use loopback addresses"),
            "{log}"
        );
        assert!(refused.stdout.is_empty());
    });
}
