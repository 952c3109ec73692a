//! Both versions of the API.

use mcr_testkit::control_plane::ControlPlane;
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::management::{Hub, folder};
use crate::objects::CLUSTER;
use crate::running::{Running, logged};
use crate::workload::{self, works};
use crate::{byo, manifests, on_capi};

const V1BETA1: (&str, &str) = ("cluster.x-k8s.io/v1beta1", "Cluster");

/// What the fleet shows of a cluster.
fn described(running: &Running, name: &str) -> Value {
    let snapshot = running.fleet.snapshot();
    let status = snapshot
        .clusters
        .iter()
        .find(|status| status.name == *name)
        .unwrap();
    json!({
        "state": status.state, "reason": status.reason, "labels": status.labels, "properties": status.properties,
        "identity": status.identity,
    })
}

#[test]
fn capi_12_a_consumer_of_v1beta1_and_one_of_v1beta2_engage_the_same_clusters_in_the_same_way() {
    on_capi(async |management| {
        let hub = management.hub("capi-12").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-12").await;
        let mut labelled = byo::cluster("labelled");
        labelled["metadata"]["labels"] = json!({"region": "eu"});
        byo::ready_as(&hub.objects, labelled, &kubeconfig).await;
        byo::create(&hub.objects, byo::cluster("waiting")).await;
        let old = Running::start("capi-12-old", hub.provider().await.only_v1beta1());
        let new = Running::start("capi-12-new", hub.provider().await);
        for (running, tag) in [(&old, "capi-12-old"), (&new, "capi-12-new")] {
            works(workload, tag, "first", "labelled").await;
            running.waits("waiting", "not initialized").await;
        }
        // The conversion webhook of Cluster API has the endpoint and the version in both.
        let same = |name: &'static str| {
            let (old, new) = (&old, &new);
            async move {
                let started = tokio::time::Instant::now();
                while described(old, name) != described(new, name) {
                    assert!(
                        started.elapsed() < crate::PATIENCE,
                        "{name}: {:#}\n{:#}",
                        described(old, name),
                        described(new, name)
                    );
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        };
        same("labelled").await;
        same("waiting").await;
        let read = |version: &str| {
            let (version, robot) = (version.to_owned(), hub.robot.name().to_owned());
            let plane = &hub.plane;
            async move {
                let log = plane.audit().await.or_fail();
                let of = format!("/apis/cluster.x-k8s.io/{version}/");
                log.count(|event| event.user == robot && event.uri.starts_with(&of))
            }
        };
        assert!(read("v1beta1").await > 0 && read("v1beta2").await > 0);

        // What changes is seen in both.
        byo::initialize(&hub.objects, "ByoCluster", "waiting").await;
        hub.objects.create(byo::secret("waiting", &kubeconfig)).await;
        for tag in ["capi-12-old", "capi-12-new"] {
            works(workload, tag, "second", "waiting").await;
        }
        same("waiting").await;
        hub.objects.delete(CLUSTER, "labelled").await;
        old.is_gone("labelled").await;
        new.is_gone("labelled").await;
        assert!(
            logged("Cluster is deprecated").len() <= 1,
            "the server's warning is not logged for each request"
        );
        old.stop().await;
        new.stop().await;
    });
}

#[test]
fn capi_12_a_hub_that_serves_only_v1beta1_is_read_as_it_was_written_there() {
    on_capi(async |_| {
        let crds = manifests::read(&folder().unwrap(), "core.yaml");
        let clusters = crds
            .into_iter()
            .find(|crd| crd["spec"]["names"]["kind"] == "Cluster")
            .unwrap();
        let plane = ControlPlane::builder().name("older").audit(true);
        let plane = plane
            .crd(manifests::only_version(clusters, "v1beta1"))
            .start()
            .await
            .or_fail();
        let hub = Hub::new(&plane, "older").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-12-older").await;
        let reference = |group: &str, kind: &str, name: &str| json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1beta1"), "kind": kind, "name": name, "namespace": "older"});
        let cluster = |name: &str| {
            json!({
                "apiVersion": V1BETA1.0, "kind": "Cluster", "metadata": {"name": name, "labels": {"region": "eu"}},
                "spec": {
                    "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
                    "controlPlaneRef": reference("controlplane", "KubeadmControlPlane", name),
                    "infrastructureRef": reference("infrastructure", "DockerCluster", name),
                    "topology": {"class": "quick-start", "version": "v1.32.0"},
                },
            })
        };
        let condition = |name: &str, status: &str| json!({"type": name, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", "severity": "Info"});
        // The control plane was ready once; the condition tells so and the field tells how it is now.
        let status = |initialized: &str, ready: bool| {
            let mut conditions = vec![
                condition("ControlPlaneInitialized", initialized),
                condition("InfrastructureReady", "True"),
            ];
            if initialized == "True" {
                conditions
                    .iter_mut()
                    .for_each(|condition| drop(condition.as_object_mut().unwrap().remove("severity")));
            }
            json!({"phase": "Provisioned", "infrastructureReady": true, "controlPlaneReady": ready, "conditions": conditions})
        };
        for (name, initialized, ready) in [
            ("early", "False", false),
            ("ready", "True", true),
            ("unready", "True", false),
        ] {
            hub.objects.create(cluster(name)).await;
            hub.objects
                .status(V1BETA1, name, status(initialized, ready))
                .await;
            hub.objects.create(byo::secret(name, &kubeconfig)).await;
        }
        let running = Running::start("capi-12-older", hub.provider().await);
        for name in ["ready", "unready"] {
            works(workload, "capi-12-older", &format!("in-{name}"), name).await;
        }
        running.waits("early", "not initialized").await;
        let described = described(&running, "ready");
        let properties = &described["properties"];
        let expected = [
            ("class", "quick-start"),
            ("version", "v1.32.0"),
            ("infrastructure", "DockerCluster"),
            ("endpoint", "127.0.0.1:6443"),
        ];
        for (property, value) in expected {
            assert_eq!(properties[property], value, "{described:#}");
        }
        hub.objects.status(V1BETA1, "early", status("True", true)).await;
        works(workload, "capi-12-older", "in-early", "early").await;
        hub.objects.delete(V1BETA1, "ready").await;
        running.is_gone("ready").await;
        running.stop().await;
    });
}
