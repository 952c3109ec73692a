use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::{
    clusters::{create, folder, kubeconfig, namespace, on_clusters},
    program::{Program, run},
};

#[test]
fn clusters_come_from_secrets() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&clusters.hub, &clusters.berlin);
        let folder = folder();
        let path = kubeconfig(folder.path(), hub);
        let path = path.to_str().unwrap();
        namespace(hub, "fleet").await;
        namespace(berlin, "secrets").await;
        create(berlin, "secrets", "seen", ("a", "b")).await;
        let args = [
            "--provider",
            "kubeconfig",
            "--hub-kubeconfig",
            path,
            "--namespace",
            "fleet",
        ];
        let program = Program::start("configmaps", [&args[..], &["--allow-loopback"]].concat());
        let label = "sigs.k8s.io/multicluster-runtime-kubeconfig";
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some("east".into()),
                labels: Some([(label.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([("kubeconfig".to_owned(), ByteString(berlin.kubeconfig().into()))].into()),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(hub.client(), "fleet");
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        program.line("seen", |line: &serde_json::Value| {
            line["cluster"] == "east"
                && line["namespace"] == "secrets"
                && line["name"] == "seen"
                && line["event"] == "live"
        });
        program.interrupt();

        // Without a word it may not lead to this machine, and says so.
        let refused = run("configmaps", [&args[..], &["--exit-after", "3"]].concat());
        let log = String::from_utf8(refused.stderr).unwrap();
        assert!(
            log.contains("untrusted access may not use loopback addresses"),
            "{log}"
        );
        assert!(refused.stdout.is_empty());

        let two = run("configmaps", ["--provider", "kubeconfig", "--kubeconfigs", "a,b"]);
        let log = String::from_utf8(two.stderr).unwrap();
        assert!(log.contains("make sense with --provider file only"), "{log}");
    });
}
