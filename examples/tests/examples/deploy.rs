//! The manifests of `examples/deploy`, with the audit logs of the API servers as witnesses: what is granted is what is used.

use std::collections::BTreeSet;

use mcr_testkit::control_plane::ControlPlane;
use serde_json::json;

use crate::{
    clusters::{member, on_clusters},
    common::{
        deploy::{Deployed, OTHER_BASELINE, Right},
        kubectl::Kubectl,
        member::Member,
    },
};

/// The manifests on the hub and on berlin; none where there is no kubectl, which is said.
fn deploy<'a>(
    example: &'static str,
    overlay: &str,
    hub: &'a Member,
    berlin: &'a Member,
) -> Option<Deployed<'a>> {
    let (Some(on_hub), Some(on_berlin)) = (Kubectl::new(&hub.kubeconfig), Kubectl::new(&berlin.kubeconfig))
    else {
        mcr_testkit::e2e::skipped(example, "there is no kubectl in KUBEBUILDER_ASSETS");
        return None;
    };
    Some(Deployed::new(
        example,
        overlay,
        (hub, on_hub),
        (berlin, on_berlin),
        json!({}),
    ))
}

/// What a user did at an API server, which must not have refused anything.
async fn used(plane: &ControlPlane, user: &str) -> BTreeSet<Right> {
    let log = plane.audit().await.unwrap();
    let mut used = BTreeSet::new();
    // What everybody may who has credentials.
    let anybody = ["authentication.k8s.io", "authorization.k8s.io"];
    for event in log
        .events()
        .filter(|event| event.user == user && event.is_start() && !event.resource.is_empty())
    {
        assert_ne!(event.code, 403, "{event:?}");
        let answered = event.code < 300 || event.code == 404;
        if !answered || anybody.contains(&event.group.as_str()) {
            continue;
        }
        let resource = match &*event.subresource {
            "" => event.resource.clone(),
            subresource => format!("{}/{subresource}", event.resource),
        };
        let right = |verb: &str| (event.group.clone(), resource.clone(), verb.to_owned());
        used.insert(right(&event.verb));
        // Server-side apply of what is not there: the API server asks whether this is allowed too.
        if event.verb == "patch" && event.code == 201 {
            used.insert(right("create"));
        }
    }
    used
}

async fn grants_what_is_used(deployed: &Deployed<'_>, hub: &ControlPlane, berlin: &ControlPlane) {
    let used = [
        used(hub, &deployed.hub_user()).await,
        used(berlin, &deployed.member_user()).await,
    ];
    assert_eq!(
        deployed.granted(),
        used,
        "granted on the hub and in the member, and used there"
    );
}

/// The overlay with leader election: it has all rights of the plain one.
#[test]
fn fleet_policy_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        let Some(deployed) = deploy("fleet-policy", "fleet-policy-replicas", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers().await;
        running.keeps_the_policy().await;
        running.tells().await;
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;
    });
}

#[test]
fn progressive_rollout_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        if let Some(kubectl) = Kubectl::new(&hub.kubeconfig) {
            kubectl.apply_rollout_crd();
        }
        let Some(deployed) = deploy("progressive-rollout", "progressive-rollout", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers().await;
        running.rolls_out().await;
        running.tells().await;
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;
    });
}

#[test]
fn baseline_rbac_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    on_clusters(|clusters| async move {
        let (hub, berlin) = (&member(&clusters.hub), &member(&clusters.berlin));
        let Some(deployed) = deploy("baseline-rbac", "baseline-rbac", hub, berlin) else {
            return;
        };
        let running = deployed.start();
        running.answers().await;
        running.keeps_the_baseline().await;
        running.tells().await;
        running.end(true);
        let running = deployed.start_with(Some(OTHER_BASELINE));
        running.prunes().await;
        running.end(true);
        grants_what_is_used(&deployed, &clusters.hub, &clusters.berlin).await;

        // Two verbs are in no audit log. They are taken away in turn.
        let running = deployed.start();
        running.keeps_the_baseline().await;
        running.needs_to_escalate_and_bind().await;
        running.end(false);
        deployed.start_with(Some(OTHER_BASELINE)).prunes().await;
    });
}

/// The manifests for a management cluster. The clusters' own kubeconfigs say what the program may do there.
#[cfg(feature = "cluster-api")]
#[test]
fn cluster_api_runs_with_the_rights_of_its_manifests_and_uses_each_of_them() {
    use std::net::{Ipv4Addr, TcpListener};

    use serde_json::Value;

    use crate::{
        common::{
            cluster_api::{cluster, crd, secret},
            deploy::rights,
            kubectl::{kustomization, with_token},
            member::unique,
        },
        program::{Program, says},
    };

    on_clusters(|clusters| async move {
        let hub = member(&clusters.hub);
        let Some(kubectl) = Kubectl::new(&hub.kubeconfig) else {
            return mcr_testkit::e2e::skipped("cluster-api", "there is no kubectl in KUBEBUILDER_ASSETS");
        };
        let namespace = &unique("cluster-api");
        let put = |object: Value| kubectl.run_with(&["apply", "-f", "-"], &object.to_string());
        let get = |what: &[&str]| -> Value {
            let args = [&["-n", namespace, "get", "-o", "json"][..], what].concat();
            serde_json::from_str(&kubectl.run(&args)).unwrap()
        };
        put(crd());
        let established = [
            "wait",
            "--for=condition=Established",
            "crd",
            "clusters.cluster.x-k8s.io",
        ];
        kubectl.run(&established);
        // That of the Clusters, which is there before.
        kubectl.run(&["create", "namespace", namespace]);
        let manifests = kustomization("overlays/cluster-api", json!({"namespace": namespace}));
        let apply = [
            "apply",
            "--validate=strict",
            "-k",
            manifests.path().to_str().unwrap(),
        ];
        kubectl.run(&apply);

        let berlin = clusters.berlin.kubeconfig();
        put(cluster(namespace, "east", true));
        put(secret(namespace, "east", &berlin));
        put(cluster(namespace, "broken", true));

        let deployment = get(&["deployment", "controller"]);
        let pod = &deployment["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let token = kubectl.run(&["-n", namespace, "create", "token", account]);
        let file = manifests.path().join("hub.kubeconfig");
        std::fs::write(&file, with_token(&hub.kubeconfig, &token, namespace)).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut args = vec!["--allow-loopback".to_owned(), "--hub-kubeconfig".to_owned()];
        args.push(file.display().to_string());
        for arg in pod["containers"][0]["args"].as_array().unwrap() {
            match arg.as_str().unwrap() {
                // The helper adds it.
                "--format=json" => {}
                arg => args.push(arg.replace("0.0.0.0:8080", &format!("127.0.0.1:{port}"))),
            }
        }
        let program = Program::start("cluster-api", &args);
        let map = "extension-apiserver-authentication";
        program.line("the cluster", says("east", map, "live"));
        // An event on the Secret, and the same event once more.
        for (content, again) in [
            ("contexts: 7", false),
            (berlin.as_str(), false),
            ("contexts: 7", true),
        ] {
            put(secret(namespace, "broken", content));
            let reason = if content == berlin {
                "KubeconfigUsable"
            } else {
                "KubeconfigBroken"
            };
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
            let reported = || {
                let field = "--field-selector=regarding.name=broken-kubeconfig";
                let list = get(&["events.events.k8s.io", field]);
                let mut events = list["items"].as_array().unwrap().iter();
                events.any(|event| event["reason"] == reason && (!again || !event["series"].is_null()))
            };
            while !reported() {
                assert!(
                    std::time::Instant::now() < deadline,
                    "{reason}: {}",
                    program.log()
                );
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        program.interrupt();

        let roles = get(&["role"]);
        let granted: BTreeSet<Right> = roles["items"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(rights)
            .collect();
        let user = format!("system:serviceaccount:{namespace}:{account}");
        assert_eq!(
            granted,
            used(&clusters.hub, &user).await,
            "granted in the hub, and used there"
        );
        // The manifest of the provider's crate has the same rules.
        let role = include_str!("../../../crates/mcr-provider-cluster-api/deploy/rbac.yaml");
        let role: Value = serde_saphyr::from_str(role).unwrap();
        assert_eq!(granted, rights(&role));
        kubectl.try_run(&[
            "-n",
            namespace,
            "delete",
            "clusters.cluster.x-k8s.io",
            "--all",
            "--wait=false",
        ]);
        kubectl.try_run(&["delete", "namespace", namespace, "--wait=false"]);
    });
}
