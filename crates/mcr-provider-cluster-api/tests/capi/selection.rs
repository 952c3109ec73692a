//! Which Clusters belong to the fleet.

use mcr_provider_cluster_api::{ClusterApiProvider, v1beta2};
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::management::granted;
use crate::objects::{BYO_CLUSTER, BYO_CONTROL_PLANE, CLUSTER};
use crate::running::Running;
use crate::workload::{self, works};
use crate::{byo, on_capi};

#[test]
fn capi_14_clusters_are_selected_by_labels_namespaces_infrastructure_class_and_predicate() {
    on_capi(async |management| {
        let (one, two) = (
            management.hub("capi-14-one").await,
            management.hub("capi-14-two").await,
        );
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-14").await;
        let with = |name: &str, change: &dyn Fn(&mut Value)| {
            let mut cluster = byo::cluster(name);
            change(&mut cluster);
            cluster
        };
        let eu = |cluster: &mut Value| cluster["metadata"]["labels"] = json!({"region": "eu"});
        let rack = |cluster: &mut Value| cluster["spec"]["infrastructureRef"]["kind"] = "RackCluster".into();
        byo::ready_as(&one.objects, with("plain", &|_| {}), &kubeconfig).await;
        byo::ready_as(&one.objects, with("european", &eu), &kubeconfig).await;
        byo::ready_as(&one.objects, with("racked", &rack), &kubeconfig).await;
        byo::ready_as(&two.objects, with("plain", &|_| {}), &kubeconfig).await;

        // One whose topology Cluster API makes from a ClusterClass.
        let template = |(version, kind): (&str, &str), spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "byo"}, "spec": {"template": {"spec": spec}}});
        let (infrastructure, control_plane) = (
            (BYO_CLUSTER.0, "ByoClusterTemplate"),
            (BYO_CONTROL_PLANE.0, "ByoControlPlaneTemplate"),
        );
        let endpoint = json!({"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 1}});
        one.objects.create(template(infrastructure, endpoint)).await;
        one.objects.create(template(control_plane, json!({}))).await;
        let reference = |(version, kind): (&str, &str)| json!({"templateRef": {"apiVersion": version, "kind": kind, "name": "byo"}});
        one.objects.create(json!({
            "apiVersion": CLUSTER.0, "kind": "ClusterClass", "metadata": {"name": "byo"},
            "spec": {"infrastructure": reference(infrastructure), "controlPlane": reference(control_plane)},
        })).await;
        one.objects
            .create(json!({
                "apiVersion": CLUSTER.0, "kind": "Cluster", "metadata": {"name": "classy"},
                "spec": {"topology": {"classRef": {"name": "byo"}, "version": "v1.36.1"}},
            }))
            .await;
        one.objects.create(byo::secret("classy", &kubeconfig)).await;
        let has_topology = |cluster: &Value| cluster["spec"]["controlPlaneRef"]["name"].is_string();
        let classy = one
            .objects
            .wait(CLUSTER, "classy", "has its topology", has_topology)
            .await;
        let made = |reference: &str| {
            classy["spec"][reference]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let provisioned = json!({"initialization": {"provisioned": true}});
        one.objects
            .status(BYO_CLUSTER, &made("infrastructureRef"), provisioned)
            .await;
        let status = json!({"initialization": {"controlPlaneInitialized": true}, "version": "v1.36.1", "externalManagedControlPlane": true});
        one.objects
            .status(BYO_CONTROL_PLANE, &made("controlPlaneRef"), status)
            .await;
        byo::is_initialized(&one.objects, "classy").await;

        let everywhere = one
            .plane
            .user("robot-capi-14")
            .rules(granted())
            .create()
            .await
            .or_fail();
        let everywhere = ClusterApiProvider::builder()
            .client(everywhere.client().await.or_fail())
            .all_namespaces();
        let of_this_test = |cluster: &v1beta2::Cluster| {
            cluster
                .metadata
                .namespace
                .as_deref()
                .is_some_and(|namespace| namespace.starts_with("capi-14"))
        };
        let everywhere = everywhere.select(of_this_test);
        let chosen = async |tag: &str, provider, names: &[&str]| {
            let running = Running::start(tag, provider);
            running.discovered().await;
            running.names_are(names).await;
            works(workload, tag, "first", names[0]).await;
            running
        };
        let provider = async || one.provider().await;
        chosen(
            "capi-14-a",
            provider().await,
            &["classy", "european", "plain", "racked"],
        )
        .await
        .stop()
        .await;
        let all = [
            "capi-14-one/classy",
            "capi-14-one/european",
            "capi-14-one/plain",
            "capi-14-one/racked",
            "capi-14-two/plain",
        ];
        chosen("capi-14-b", everywhere, &all).await.stop().await;
        chosen(
            "capi-14-c",
            provider().await.infrastructure_kinds(["RackCluster"]),
            &["racked"],
        )
        .await
        .stop()
        .await;
        let owned = "topology.cluster.x-k8s.io/owned";
        chosen("capi-14-d", provider().await.labels(owned), &["classy"])
            .await
            .stop()
            .await;
        let class = chosen(
            "capi-14-e",
            provider().await.cluster_classes(["byo"]),
            &["classy"],
        )
        .await;
        let classy = class.ready("classy").await;
        assert_eq!(classy.property("class").as_deref(), Some("byo"));
        assert_eq!(classy.property("infrastructure").as_deref(), Some("ByoCluster"));
        class.stop().await;

        // A selection is followed while it changes.
        let running = chosen("capi-14-f", provider().await.labels("region=eu"), &["european"]).await;
        let label = |region: Value| json!({"metadata": {"labels": {"region": region}}});
        one.objects.merge(CLUSTER, "plain", label("eu".into())).await;
        running.names_are(&["european", "plain"]).await;
        one.objects.merge(CLUSTER, "european", label(Value::Null)).await;
        running.names_are(&["plain"]).await;
        running.stop().await;
    });
}
