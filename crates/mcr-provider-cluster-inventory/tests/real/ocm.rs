//! Open Cluster Management as the cluster manager.

use std::{fs, path::Path};

use kube::api::DeleteParams;
use mcr_core::ClusterState;
use mcr_provider_cluster_inventory::{AccessProviderConfig, AccessProviders};
use mcr_testkit::{
    control_plane::{ControlPlane, Program},
    waiting::OrFail,
};
use serde_json::{Value, json};

use crate::{
    FLEET, Running, api, condition, config_maps, create, eventually, folder, hub, member, namespace,
    profiles, requests, status,
    support::{access, plugin, prints},
    yaml,
};

const CLUSTERS: &str = "cluster.open-cluster-management.io/v1";
const SETS: &str = "cluster.open-cluster-management.io/v1beta2";
/// How often the cluster manager changes a status.
const UPDATES: usize = 100;

/// A hub on which the registration controller of Open Cluster Management runs.
async fn ocm_hub(folder: &Path) -> (ControlPlane, Program) {
    let mut crds: Vec<_> = fs::read_dir(folder.join("ocm-crds"))
        .unwrap()
        .map(|entry| yaml(&entry.unwrap().path()))
        .collect();
    let profiles = crds
        .iter()
        .position(|crd| crd["spec"]["names"]["kind"] == "ClusterProfile")
        .unwrap();
    let hub = hub(crds.swap_remove(profiles)).await;
    for crd in crds {
        hub.install_crd(crd).await.or_fail();
    }
    for name in ["open-cluster-management", "open-cluster-management-hub"] {
        namespace(&hub, name).await;
    }
    let args = [
        "controller",
        "--kubeconfig=hub.kubeconfig",
        "--namespace=open-cluster-management-hub",
        "--disable-leader-election",
        "--feature-gates=ClusterProfile=true",
        &format!("--listen=127.0.0.1:{}", Program::free_port().or_fail()),
    ]
    .map(str::to_owned);
    let files = [(
        "hub.kubeconfig",
        &*hub
            .user("ocm")
            .groups(["system:masters"])
            .create()
            .await
            .or_fail()
            .kubeconfig(),
    )];
    let program = Program::start("registration", &folder.join("registration"), &files, &args).or_fail();
    (hub, program)
}

/// The status of a ManagedCluster that its agent has joined.
fn joined(available: &str, message: &str, region: &str) -> Value {
    let condition = |type_: &str, status: &str| condition(type_, status, message);
    json!({
        "conditions": [
            condition("HubAcceptedManagedCluster", "True"), condition("ManagedClusterJoined", "True"),
            condition("ManagedClusterConditionAvailable", available),
        ],
        "version": {"kubernetes": "v1.36.1"},
        "clusterClaims": [{"name": "region.example.com", "value": region}],
    })
}

/// Waits until the claim of the ManagedCluster has this value in the fleet.
async fn region(running: &Running, value: &str) {
    eventually(&format!("the region is {value}"), || {
        let cluster = running.fleet.get("m1").ok();
        cluster.is_some_and(|cluster| cluster.property("region.example.com").as_deref() == Some(value))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_cluster_joins_when_it_has_access_and_leaves_with_its_binding() {
    let Some(folder) = folder("ocm") else { return };
    let ((hub, ocm), member) = tokio::join!(ocm_hub(&folder), member("m1"));
    let scratch = tempfile::tempdir().unwrap();
    let runs = scratch.path().join("runs");
    let account = member
        .service_account("default", "consumer")
        .cluster_rules([mcr_testkit::control_plane::policy_rule(["*"], ["*"], ["*"])])
        .create()
        .await
        .or_fail();
    let prints = prints(&account.token().await.or_fail());
    let plugin = plugin(&scratch, &format!("echo ran >> {}; {prints}", runs.display()));
    let config = AccessProviderConfig::new("p", plugin.to_str().unwrap()).provide_cluster_info(true);
    let running = Running::start(&hub, AccessProviders::new([config]).unwrap(), &[&plugin]).await;

    let client = hub.client();
    let set = json!({"cluster.open-cluster-management.io/clusterset": "default"});
    let managed = json!({"metadata": {"name": "m1", "labels": set}, "spec": {"hubAcceptsClient": true}});
    create(&client, CLUSTERS, "ManagedCluster", None, managed).await;
    let binding = json!({"metadata": {"name": "default"}, "spec": {"clusterSet": "default"}});
    create(&client, SETS, "ManagedClusterSetBinding", Some(FLEET), binding).await;
    running
        .waits("m1", "has no condition ControlPlaneHealthy yet")
        .await;
    ocm.check_running().or_fail();

    let clusters = api(&client, CLUSTERS, "ManagedCluster", None);
    status(&clusters, "m1", joined("True", "", "eu")).await;
    running.waits("m1", "it has no access providers").await;

    let access = access("p", &member.url(), &member.ca_pem(), json!({"name": "m1"}));
    status(&profiles(&client), "m1", json!({"accessProviders": access})).await;
    let cluster = running.ready("m1").await;
    for (name, value) in [
        ("region.example.com", "eu"),
        ("version", "v1.36.1"),
        ("manager", "open-cluster-management"),
    ] {
        assert_eq!(cluster.property(name).as_deref(), Some(value));
    }
    let maps = config_maps(&cluster).await;

    // Changes of the status by the cluster manager.
    let (in_hub, in_member) = (
        hub.audit().await.or_fail().mark(),
        member.audit().await.or_fail().mark(),
    );
    for beat in 0..UPDATES {
        status(&clusters, "m1", joined("True", &format!("beat {beat}"), "eu")).await;
    }
    status(&clusters, "m1", joined("True", "last", "us")).await;
    region(&running, "us").await;
    assert!(
        running.fleet.get("m1").unwrap().is_same(&cluster),
        "it was never engaged anew"
    );
    let updates = requests(&hub, "ocm", in_hub).await;
    let updates = updates
        .iter()
        .filter(|event| event.resource == "clusterprofiles" && event.subresource == "status");
    assert!(updates.count() > 1, "the cluster manager has passed them on");
    let of_consumer = [
        requests(&hub, "consumer", in_hub).await,
        requests(&member, "consumer", in_member).await,
    ];
    let lists: Vec<_> = of_consumer
        .iter()
        .flatten()
        .filter(|event| event.verb == "list")
        .collect();
    assert!(lists.is_empty(), "{lists:?}");
    assert_eq!(fs::read_to_string(runs).unwrap(), "ran\n");

    // The cluster manager loses its agent, and finds it again.
    status(&clusters, "m1", joined("Unknown", "lost", "asia")).await;
    region(&running, "asia").await;
    assert_eq!(running.state("m1"), Some(ClusterState::Ready), "it stays engaged");
    status(&clusters, "m1", joined("False", "down", "asia")).await;
    running.waits("m1", "ControlPlaneHealthy is False").await;
    status(&clusters, "m1", joined("True", "up", "asia")).await;
    assert!(
        running.ready("m1").await.is_same(&cluster),
        "it kept what it knew"
    );

    api(&client, SETS, "ManagedClusterSetBinding", Some(FLEET))
        .delete("default", &DeleteParams::default())
        .await
        .or_fail();
    eventually("it has left", || running.fleet.get("m1").is_err()).await;
    drop(maps);
    running.running.stop().await;
}
