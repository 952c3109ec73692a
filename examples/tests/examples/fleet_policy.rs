use crate::{
    clusters::{member, on_clusters},
    common::fleet_policy,
};

#[test]
fn a_policy_is_kept_in_every_cluster_and_given_up_where_it_is_not_meant() {
    on_clusters(|clusters| async move {
        fleet_policy::story(&member(&clusters.berlin), &member(&clusters.lyon)).await;
    });
}

#[cfg(feature = "kubeconfig")]
#[test]
fn a_cluster_named_hub_is_left_out_unless_it_is_asked_for() {
    use serde_json::{Value, json};

    use crate::{
        clusters::{folder, kubeconfig},
        common::member::{create, edit, unique},
        program::Program,
    };
    on_clusters(|clusters| async move {
        let (host, id, folder) = (member(&clusters.hub), unique("hub"), folder());
        let path = kubeconfig(folder.path(), &clusters.hub);
        host.namespace(&id, json!({})).await;
        let secrets = kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(host.client.clone(), &id);
        for (name, plane) in [("east", &clusters.berlin), ("hub", &clusters.lyon)] {
            let labels = json!({"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"});
            let secret = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"kubeconfig": plane.kubeconfig()}});
            create(&secrets, secret).await;
            member(plane).namespace(&id, json!({"example.io/test": id})).await;
        }
        let policy = folder.path().join("policy.yaml");
        let selected = json!({"matchLabels": {"example.io/test": id}});
        let text = json!({"namespaces": selected, "labels": {"checked": "yes"}, "configMap": {"name": "platform", "data": {}}});
        std::fs::write(&policy, text.to_string()).unwrap();
        let (policy, path) = (policy.to_str().unwrap(), path.to_str().unwrap());
        let args = [
            "--policy",
            policy,
            "--name",
            &id,
            "--provider",
            "kubeconfig",
            "--hub-kubeconfig",
            path,
        ];
        let args = [&args[..], &["--namespace", &id, "--allow-loopback"]].concat();
        let in_cluster =
            |name: &'static str| move |line: &Value| line["cluster"] == name && line["kind"] == "ConfigMap";

        let program = Program::start("fleet-policy", &args);
        program.line("a member", in_cluster("east"));
        program.logged("state=Ready", 2);
        // What was to be done there has been done before things are repaired elsewhere, twice.
        for _ in 0..2 {
            let mark = program.mark();
            let unlabelled = json!({"metadata": {"labels": null}});
            edit(&member(&clusters.berlin).maps(&id), "platform", unlabelled).await;
            program.after(mark, "a repair", |line| {
                in_cluster("east")(line) && line["event"] == "repaired"
            });
        }
        assert!(!program.interrupt().iter().any(in_cluster("hub")));

        let program = Program::start("fleet-policy", [&args[..], &["--include-hub"]].concat());
        program.line("the hub", in_cluster("hub"));
        program.interrupt();
    });
}
