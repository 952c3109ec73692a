//! The manifests of `examples/deploy` on real clusters.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_testkit::e2e::{
    E2e,
    E2eCluster::{Alpha, Hub},
    skipped,
};
use serde_json::{Value, json};

use crate::{
    cluster::{member, on_kind},
    common::{
        deploy::Deployed,
        kubectl::Kubectl,
        member::{Member, delete, edit, eventually, unique},
    },
    image::{Images, run},
};

/// The address of a cluster as Pods of another one see it, which is in its certificate.
fn as_seen_by_pods(e2e: &E2e, member: &Member) -> String {
    let kubectl = Kubectl::with(e2e.kubectl(), &member.kubeconfig);
    let path = r#"jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}"#;
    let address = kubectl.run(&["get", "nodes", "-o", path]);
    let mut document: Value = serde_saphyr::from_str(&member.kubeconfig).unwrap();
    document["clusters"][0]["cluster"]["server"] = json!(format!("https://{}:6443", address.trim()));
    document.to_string()
}

#[test]
fn fleet_policy_runs_in_a_pod() {
    on_kind(|e2e| async move {
        if !e2e.pods_can_run() {
            let why = "no Pod runs on nodes that are a control plane only; the same program with the same rights runs as a process";
            return skipped("fleet-policy in a Pod", why);
        }
        let mut images = Images::new(&e2e);
        let tag = images.of_example("fleet-policy");
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("image.tar");
        let archive = archive.to_str().unwrap();
        images.engine(&["save", "--output", archive, &tag]);
        let load = ["load", "image-archive", archive, "--name", Hub.name()];
        run(std::process::Command::new(e2e.kind().program).args(load));

        let (hub, alpha) = (member(&e2e, Hub).await, member(&e2e, Alpha).await);
        let (name, version) = tag.rsplit_once(':').unwrap();
        let image = json!({"name": "registry.example.com/fleet-policy", "newName": name, "newTag": version});
        let deployed = Deployed::new(
            "fleet-policy",
            "fleet-policy",
            (&hub, Kubectl::with(e2e.kubectl(), &hub.kubeconfig)),
            (&alpha, Kubectl::with(e2e.kubectl(), &alpha.kubeconfig)),
            json!({"images": [image]}),
        );
        deployed.add_secret(
            "east",
            &deployed.member_kubeconfig_of(&as_seen_by_pods(&e2e, &alpha)),
        );
        let kubectl = &deployed.hub.1;
        let in_namespace = ["-n", &deployed.namespace];
        let status = [
            "rollout",
            "status",
            "deployment/controller",
            "--timeout=120s",
            "--request-timeout=0",
        ];
        kubectl.run(&[&in_namespace[..], &status].concat());

        let shop = unique("shop");
        alpha.namespace(&shop, json!({"example.io/team": "shop"})).await;
        let has = |map: Option<&ConfigMap>| map.and_then(|map| map.data.as_ref()?.get("support").cloned());
        let maps = alpha.maps(&shop);
        eventually(&maps, "platform", "it is made", |map| {
            has(map).as_deref() == Some("#platform")
        })
        .await;
        edit(&maps, "platform", json!({"data": {"support": "me"}})).await;
        eventually(&maps, "platform", "it is repaired", |map| {
            has(map).as_deref() == Some("#platform")
        })
        .await;
        let log = kubectl.run(&[&in_namespace[..], &["logs", "deployment/controller"]].concat());
        assert!(
            log.contains(r#""event":"repaired""#) && !log.contains("forbidden"),
            "{log}"
        );
        delete(&alpha.namespaces(), &shop).await;
    });
}
