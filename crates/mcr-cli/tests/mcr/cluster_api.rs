//! `mcr clusters` and `mcr doctor` with the provider `cluster-api`, on a simulated management cluster.

use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::harness::{Output, User};

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

fn crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CLUSTERS},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "names": {"kind": "Cluster", "plural": "clusters"},
            "versions": [version("v1beta2", true), version("v1beta1", false)],
        },
    })
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn cluster(namespace: &str, name: &str, initialized: bool) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"env": "prod"},
            "finalizers": ["cluster.cluster.x-k8s.io"],
        },
        "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name}},
        "status": {
            "phase": if initialized { "Provisioned" } else { "Provisioning" },
            "initialization": {"controlPlaneInitialized": initialized},
            "conditions": [{"type": "InfrastructureReady", "status": "False", "reason": "NotReady", "message": "no quota",
                            "lastTransitionTime": "2026-01-31T09:00:00Z"}],
        },
    })
}

fn secret(cluster: &str, labelled: bool, kubeconfig: &str) -> Value {
    let labels = Some(json!({"cluster.x-k8s.io/cluster-name": cluster})).filter(|_| labelled);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"namespace": "fleet", "name": format!("{cluster}-kubeconfig"), "labels": labels},
        "stringData": {"value": kubeconfig},
    })
}

/// A management cluster with a Cluster for each obstacle.
async fn management(member: &SimServer) -> SimServer {
    let hub = SimCluster::builder().name("hub").admin_token("admin").build();
    let kubeconfig = &member.kubeconfig();
    for object in [
        crd(),
        namespace("fleet"),
        namespace("other"),
        cluster("fleet", "ready", true),
        secret("ready", true, kubeconfig),
        cluster("fleet", "waits", false),
        secret("waits", true, kubeconfig),
        cluster("fleet", "without", true),
        cluster("fleet", "unlabelled", true),
        secret("unlabelled", false, kubeconfig),
        cluster("fleet", "broken", true),
        secret("broken", true, "contexts: 7"),
        cluster("fleet", "deleting", true),
        secret("deleting", true, kubeconfig),
        secret("orphan", true, kubeconfig),
        cluster("other", "elsewhere", true),
    ] {
        hub.create(object).or_fail();
    }
    hub.delete(CLUSTERS, "fleet/deleting").or_fail();
    hub.serve().await.or_fail()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_that_wait_are_shown_with_the_reason_and_the_doctor_has_the_fix_of_each_obstacle() {
    let member = crate::harness::served("member").await;
    let hub = management(&member).await;
    let user = User::with([hub.kubeconfig()]);
    let flags = ["--provider", "cluster-api", "-n", "fleet", "--allow-loopback"];
    let run = async |command: &'static str, more: &[&'static str]| {
        user.mcr([&[command], &flags[..], more].concat()).await
    };
    // Names that nobody announces.
    let missing = [
        "-o",
        "json",
        "--timeout",
        "60s",
        "deleting",
        "orphan",
        "elsewhere",
        "nowhere",
    ];
    let everywhere = ["clusters", "--provider", "cluster-api", "-A", "--allow-loopback"];
    let everywhere = [&everywhere[..], &["--timeout", "60s"]].concat();
    let (shown, said, unknown, unselected, all) = futures::join!(
        run("clusters", &["--timeout", "60s"]),
        run("doctor", &["-o", "json", "--timeout", "60s"]),
        run("doctor", &missing),
        run(
            "doctor",
            &["-l", "env=dev", "-o", "json", "--timeout", "60s", "ready"]
        ),
        user.mcr(everywhere)
    );
    let shown = shown.ended(0);
    let line = |name: &str| {
        let mut lines = shown.out.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name}:\n{}", shown.out))
            .to_owned()
    };
    assert!(line("ready").contains("Ready"), "{}", line("ready"));
    for (name, state, reason) in [
        ("waits", "Suspended", "not initialized yet (phase Provisioning)"),
        ("without", "Suspended", "no Secret without-kubeconfig"),
        (
            "unlabelled",
            "Suspended",
            "with the label cluster.x-k8s.io/cluster-name",
        ),
        ("broken", "Broken", "fleet/broken-kubeconfig"),
    ] {
        let line = line(name);
        assert!(line.contains(state) && line.contains(reason), "{line}");
    }
    assert_eq!(shown.out.lines().count(), 6, "{}", shown.out);

    let said = said.ended(1);
    let is = |said: &Output, cluster: &str, check: &str, level: &str, saw: &str, fix: &str| {
        let found = said.found(cluster, check);
        assert!(
            found.0 == level && found.1.contains(saw) && found.2.contains(fix),
            "{cluster}: {found:?}"
        );
    };
    said.of_provider("hub", "serves cluster.x-k8s.io in v1beta2, v1beta1");
    for right in [
        "may list, watch clusters.cluster.x-k8s.io in namespace fleet",
        "may list, watch, get secrets in namespace fleet",
    ] {
        assert_eq!(said.of_provider("rights", right)["result"], "ok");
    }
    is(&said, "ready", "connection", "ok", "", "");
    let describe = "kubectl -n fleet describe clusters.cluster.x-k8s.io";
    is(
        &said,
        "waits",
        "state",
        "warning",
        "is not initialized (phase Provisioning; InfrastructureReady: no quota)",
        describe,
    );
    is(
        &said,
        "without",
        "state",
        "problem",
        "there is no Secret without-kubeconfig",
        "control plane provider",
    );
    let label = "label --overwrite secret unlabelled-kubeconfig cluster.x-k8s.io/cluster-name=unlabelled";
    is(&said, "unlabelled", "state", "problem", "lacks the label", label);
    is(
        &said,
        "broken",
        "description",
        "problem",
        "key \"value\"",
        "fleet/broken-kubeconfig",
    );

    let said = unknown.ended(1);
    is(
        &said,
        "deleting",
        "name",
        "problem",
        "keep_while keeps it",
        "describe clusters.cluster.x-k8s.io deleting",
    );
    is(
        &said,
        "orphan",
        "name",
        "problem",
        "no Cluster fleet/orphan",
        "choose one of the Clusters",
    );
    is(
        &said,
        "elsewhere",
        "name",
        "problem",
        "provider looks in fleet",
        "repeat with -n other",
    );
    is(
        &said,
        "nowhere",
        "name",
        "problem",
        "no provider has a cluster of this name",
        "mcr clusters",
    );

    let said = unselected.ended(1);
    is(
        &said,
        "ready",
        "name",
        "problem",
        "do not match --selector",
        "--selector",
    );
    all.ended(0).prints("fleet/ready").prints("other/elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_cluster_api_and_missing_rights_have_their_own_findings() {
    let plain = crate::harness::served("plain").await;
    let doctor = [
        "doctor",
        "--provider",
        "cluster-api",
        "-o",
        "json",
        "--timeout",
        "60s",
    ];
    let member = crate::harness::served("member").await;
    let hub = management(&member).await;
    let reader = [
        SimRule::new(["cluster.x-k8s.io"], ["clusters"], ["list", "watch"]),
        SimRule::new([""], ["secrets"], ["list", "watch"]),
        SimRule::new([""], ["namespaces"], ["get"]),
    ];
    let reader = reader.into_iter().fold(SimUser::new("robot"), SimUser::rule);
    hub.cluster().set_user("reader", reader);
    let users = [plain.kubeconfig(), hub.kubeconfig_with_token("reader")].map(|hub| User::with([hub]));
    let in_fleet = [&doctor[..], &["-n", "fleet", "--allow-loopback"]].concat();
    let (nothing, said) = futures::join!(users[0].mcr(doctor), users[1].mcr(in_fleet));
    let (nothing, said) = (nothing.ended(1), said.ended(1));
    let found = nothing.of_provider("provider", "the hub has no Cluster API");
    let fix = found["fix"].as_str().unwrap();
    assert!(
        fix.contains("--hub-context") && fix.contains("install Cluster API"),
        "{fix}"
    );
    assert_eq!(nothing.json()["problems"], 1, "{}", nothing.out);

    let found = said.of_provider("rights", "may not get secrets in namespace fleet (403)");
    let fix = found["fix"].as_str().unwrap();
    assert!(
        fix.starts_with("kubectl create role mcr-secrets -n fleet --verb=list,watch,get"),
        "{fix}"
    );
    assert_eq!(
        said.of_provider("rights", "may not create, patch events")["result"],
        "warning"
    );
    let (level, saw, _) = said.found("ready", "description");
    assert!(
        level == "problem" && saw.contains("can't be read in the hub"),
        "{saw}"
    );
}
