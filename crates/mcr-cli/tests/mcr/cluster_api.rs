//! `mcr clusters` and `mcr doctor` with the provider `cluster-api`, on a simulated management cluster.

use mcr_testkit::{
    sim::{SimCluster, SimServer},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::harness::{User, crd, namespace_object, sim};

const CLUSTERS: &str = "clusters.cluster.x-k8s.io";

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
        crd("cluster.x-k8s.io", "Cluster", "clusters", ["v1beta2", "v1beta1"]),
        namespace_object("fleet"),
        namespace_object("other"),
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
    let member = sim("member").await;
    let hub = management(&member).await;
    let user = User::with([hub.kubeconfig()]);
    let flags = "--provider cluster-api --allow-loopback --timeout 60s";
    let (shown, text_of, unknown, unselected, all) = futures::join!(
        user.run(format!("clusters {flags} -n fleet")),
        user.run(format!("doctor {flags} -n fleet -o json")),
        // Names that nobody announces.
        user.run(format!(
            "doctor {flags} -n fleet -o json deleting orphan elsewhere nowhere"
        )),
        user.run(format!("doctor {flags} -n fleet -l env=dev -o json ready")),
        user.run(format!("clusters {flags} -A")),
    );
    let shown = shown.ended(0);
    shown.shows(
        "ready      | Ready     |
         waits      | Suspended | not initialized yet (phase Provisioning)
         without    | Suspended | no Secret without-kubeconfig
         unlabelled | Suspended | with the label cluster.x-k8s.io/cluster-name
         broken     | Broken    | fleet/broken-kubeconfig",
    );
    assert_eq!(shown.out.lines().count(), 6, "{}", shown.out);

    let text_of = text_of.ended(1);
    text_of.of_provider("hub", "serves cluster.x-k8s.io in v1beta2, v1beta1");
    for right in [
        "may list, watch clusters.cluster.x-k8s.io in namespace fleet",
        "may list, watch, get secrets in namespace fleet",
    ] {
        assert_eq!(text_of.of_provider("rights", right)["result"], "ok");
    }
    text_of.finds(
        "ready      | connection  | ok      | |
         waits      | state       | warning | is not initialized (phase Provisioning; InfrastructureReady: no quota) | kubectl -n fleet describe clusters.cluster.x-k8s.io
         without    | state       | problem | there is no Secret without-kubeconfig | control plane provider
         unlabelled | state       | problem | lacks the label | label --overwrite secret unlabelled-kubeconfig cluster.x-k8s.io/cluster-name=unlabelled
         broken     | description | problem | key \"value\" | fleet/broken-kubeconfig",
    );
    unknown.ended(1).finds(
        "deleting  | name | problem | keep_while keeps it | describe clusters.cluster.x-k8s.io deleting
         orphan    | name | problem | no Cluster fleet/orphan | choose one of the Clusters
         elsewhere | name | problem | provider looks in fleet | repeat with -n other
         nowhere   | name | problem | no provider has a cluster of this name | mcr clusters",
    );
    let unselected = unselected.ended(1);
    unselected.finds("ready | name | problem | do not match --selector | --selector");
    all.ended(0).prints("fleet/ready").prints("other/elsewhere");
}
