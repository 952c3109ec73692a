//! How clusters join, stay and leave.

use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::{Value, json};

use crate::byo;
use crate::kubeadm::Kubeadm;
use crate::objects::{BYO_CLUSTER, BYO_CONTROL_PLANE, CLUSTER, SECRET, condition, initialized, uid};
use crate::running::Running;
use crate::workload::{self, from_us, works};
use crate::{PATIENCE, on_capi};

#[test]
fn capi_01_a_cluster_is_engaged_when_it_is_initialized_and_not_when_only_its_secret_is_there() {
    on_capi(async |management| {
        let hub = management.hub("capi-01").await;
        let cluster = Kubeadm::new(&hub.objects, "one");
        cluster.create().await;
        cluster.secret_exists().await;
        let running = Running::start("capi-01", hub.provider().await);
        running.discovered().await;
        let reason = running.waits("one", "not initialized").await;
        assert!(!initialized(&cluster.cluster().await), "{reason}");

        let plane = cluster.serve().await;
        cluster.is_initialized().await;
        running.ready("one").await;
        works(&plane, "capi-01", "first", "one").await;
        assert_eq!(running.failed(), Vec::<String>::new());
        running.stop().await;
    });
}

#[test]
fn capi_02_initialized_is_enough_without_available_and_without_a_control_plane_reference() {
    on_capi(async |management| {
        let hub = management.hub("capi-02").await;
        let workload = workload::shared().await;
        let running = Running::start("capi-02", hub.provider().await);

        // Initialised, and no Machine of the control plane has a node, so Cluster API never calls it available.
        let cluster = Kubeadm::new(&hub.objects, "unavailable");
        let plane = cluster.serve().await;
        cluster.create().await;
        cluster.is_initialized().await;
        works(&plane, "capi-02", "first", "unavailable").await;
        assert_ne!(condition(&cluster.cluster().await, "Available"), "True");

        // Without a reference only the condition tells. Cluster API sets it when a Machine of the control plane has its node.
        let mut machines = byo::cluster("machines");
        let spec = machines["spec"].as_object_mut().unwrap();
        spec.remove("controlPlaneRef");
        let node = json!({"metadata": {"name": "capi-02"}, "spec": {"providerID": "byo://capi-02"}});
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(workload.client());
        nodes
            .create(&Default::default(), &serde_json::from_value(node).or_fail())
            .await
            .or_fail();
        hub.objects
            .create(json!({
                "apiVersion": BYO_CLUSTER.0, "kind": "ByoCluster", "metadata": {"name": "machines"},
                "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 1}},
            }))
            .await;
        hub.objects.create(machines).await;
        let kubeconfig = byo::kubeconfig(workload, "capi-02").await;
        hub.objects.create(byo::secret("machines", kubeconfig)).await;
        let provisioned = json!({"initialization": {"provisioned": true}});
        hub.objects
            .status(BYO_CLUSTER, "machines", provisioned.clone())
            .await;
        running.waits("machines", "not initialized").await;

        let (machine, byo_machine) = (
            ("cluster.x-k8s.io/v1beta2", "Machine"),
            (BYO_CLUSTER.0, "ByoMachine"),
        );
        hub.objects
            .create(json!({
                "apiVersion": byo_machine.0, "kind": byo_machine.1, "metadata": {"name": "first"},
                "spec": {"providerID": "byo://capi-02"},
            }))
            .await;
        hub.objects.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap"}, "data": {"value": ""},
        })).await;
        hub.objects.create(json!({
            "apiVersion": machine.0, "kind": machine.1,
            "metadata": {"name": "first", "labels": {
                "cluster.x-k8s.io/cluster-name": "machines", "cluster.x-k8s.io/control-plane": "",
            }},
            "spec": {
                "clusterName": "machines", "version": "v1.36.1", "bootstrap": {"dataSecretName": "bootstrap"},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoMachine", "name": "first"},
            },
        })).await;
        hub.objects.status(byo_machine, "first", provisioned).await;
        let has_condition = |cluster: &Value| condition(cluster, "ControlPlaneInitialized") == "True";
        let cluster = hub
            .objects
            .wait(CLUSTER, "machines", "has the condition", has_condition)
            .await;
        assert!(!initialized(&cluster), "only the condition tells: {cluster:#}");
        running.ready("machines").await;
        works(workload, "capi-02", "second", "machines").await;
        running.stop().await;
    });
}

#[test]
fn capi_03_a_cluster_whose_secret_comes_last_is_engaged_then() {
    on_capi(async |management| {
        let hub = management.hub("capi-03").await;
        let cluster = Kubeadm::new(&hub.objects, "late");
        let plane = cluster.serve().await;
        cluster.create().await;
        cluster.is_initialized().await;
        cluster.pause().await;
        hub.objects.delete(SECRET, &cluster.secret()).await;

        let running = Running::start("capi-03", hub.provider().await);
        running.discovered().await;
        running.waits("late", "late-kubeconfig").await;
        cluster.unpause().await;
        running.ready("late").await;
        works(&plane, "capi-03", "first", "late").await;
        running.stop().await;
    });
}

#[test]
fn capi_09_a_paused_cluster_stays_engaged() {
    on_capi(async |management| {
        let hub = management.hub("capi-09").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-09").await;
        byo::ready(&hub.objects, "field", &kubeconfig).await;
        byo::ready(&hub.objects, "annotation", &kubeconfig).await;
        let running = Running::start("capi-09", hub.provider().await);
        let before = [running.ready("field").await, running.ready("annotation").await];

        hub.objects
            .merge(CLUSTER, "field", json!({"spec": {"paused": true}}))
            .await;
        let annotation = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
        hub.objects.merge(CLUSTER, "annotation", annotation).await;
        for cluster in &before {
            let name = cluster.name().as_str();
            hub.objects
                .wait(CLUSTER, name, "is paused", |cluster| {
                    condition(cluster, "Paused") == "True"
                })
                .await;
            works(workload, "capi-09", &format!("in-{name}"), name).await;
            assert!(running.fleet.get(name).or_fail().is_same(cluster));
        }
        running.stop().await;
    });
}

#[test]
fn capi_10_a_deleted_cluster_leaves_at_once_and_its_orphaned_secret_engages_nothing() {
    on_capi(async |management| {
        let hub = management.hub("capi-10").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-10").await;
        let first = byo::ready(&hub.objects, "short", &kubeconfig).await;
        let running = Running::start("capi-10", hub.provider().await);
        let keeps = hub.provider().await.provider_name("keeps").keep_while(|_| true);
        let keeps = Running::start("capi-10-keeps", keeps);
        let before = running.ready("short").await;
        keeps.ready("short").await;
        works(workload, "capi-10", "first", "short").await;

        // The control plane provider holds its object, as a real one does for seconds.
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        hub.objects
            .merge(BYO_CONTROL_PLANE, "short", finalizers(json!(["capi.test/hold"])))
            .await;
        hub.objects.delete(CLUSTER, "short").await;
        running.is_gone("short").await;
        let deleted = hub.objects.exists(CLUSTER, "short").await;
        assert!(
            deleted["metadata"]["deletionTimestamp"].is_string(),
            "{deleted:#}"
        );
        let deleting = |cluster: &Value| condition(cluster, "Deleting") == "True";
        hub.objects
            .wait(CLUSTER, "short", "is being deleted", deleting)
            .await;
        // A controller that has to clean up in the workload cluster still can.
        works(workload, "capi-10-keeps", "last", "short").await;
        hub.objects
            .merge(BYO_CONTROL_PLANE, "short", finalizers(json!([])))
            .await;
        hub.objects.is_gone(CLUSTER, "short").await;
        keeps.is_gone("short").await;
        let mark = workload.audit().await.or_fail().mark();

        // The Secret is there and nobody owns it.
        hub.objects.exists(SECRET, "short-kubeconfig").await;
        let later = Running::start("capi-10", hub.provider().await);
        later.discovered().await;
        byo::rewrite(
            &hub.objects,
            "short",
            byo::kubeconfig(workload, "capi-10-b").await,
        )
        .await;
        byo::create(&hub.objects, byo::cluster("short")).await;
        for running in [&running, &later] {
            running.waits("short", "not initialized").await;
        }

        let asked = workload.audit_since(mark).await.or_fail();
        let asked =
            asked.count(|event| from_us(event) && event.is_start() && event.user.starts_with("capi-10"));
        assert_eq!(asked, 0, "nobody connects to a cluster that has left");

        // The same name and another UID.
        byo::initialize(&hub.objects, "ByoCluster", "short").await;
        let second = byo::is_initialized(&hub.objects, "short").await;
        assert_ne!(uid(&first), uid(&second));
        let after = running.ready("short").await;
        assert!(!after.is_same(&before));
        eventually(PATIENCE, "its identity is another", || {
            after.identity().is_some() && after.identity() != before.identity()
        })
        .await;
        works(workload, "capi-10", "second", "short").await;
        running.stop().await;
        keeps.stop().await;
        later.stop().await;
    });
}
