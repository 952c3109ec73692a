//! Clusters with a real KubeadmControlPlane and a real kube-apiserver, whose certificates come from the Secret `<name>-ca`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use mcr_testkit::control_plane::{CertificateAuthority, ControlPlane, Program};
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::byo;
use crate::objects::{BYO_CLUSTER, CLUSTER, KUBEADM, Objects, SECRET, base64};

pub(crate) struct Kubeadm {
    pub(crate) objects: Objects,
    pub(crate) name: String,
    authority: CertificateAuthority,
    port: u16,
}

impl Kubeadm {
    /// Nothing is created yet.
    pub(crate) fn new(objects: &Objects, name: &str) -> Self {
        Self {
            objects: objects.clone(),
            name: name.to_owned(),
            authority: CertificateAuthority::new("kubernetes").or_fail(),
            port: Program::free_port().or_fail(),
        }
    }

    /// Creates all objects. Cluster API makes the kubeconfig then; it is signed by the authority in `<name>-ca`, which a user may
    /// provide, and so the API server can be started before or after.
    pub(crate) async fn create(&self) {
        let name = &self.name;
        let infrastructure = |kind: &str, spec: Value| json!({"apiVersion": BYO_CLUSTER.0, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let endpoint = json!({"host": "127.0.0.1", "port": self.port});
        let machine = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ByoMachineTemplate", "name": name});
        self.objects.create(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": format!("{name}-ca"), "labels": {"cluster.x-k8s.io/cluster-name": name}},
            "data": {"tls.crt": base64(self.authority.certificate_pem()), "tls.key": base64(self.authority.key_pem())},
        })).await;
        self.objects
            .create(infrastructure(
                "ByoCluster",
                json!({"controlPlaneEndpoint": endpoint}),
            ))
            .await;
        self.objects
            .create(infrastructure(
                "ByoMachineTemplate",
                json!({"template": {"spec": {}}}),
            ))
            .await;
        self.objects.create(json!({
            "apiVersion": KUBEADM.0, "kind": KUBEADM.1, "metadata": {"name": name},
            "spec": {
                "replicas": 1, "version": "v1.36.1", "machineTemplate": {"spec": {"infrastructureRef": machine}},
                "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}},
            },
        })).await;
        let mut cluster = byo::cluster(name);
        cluster["spec"]["controlPlaneRef"]["kind"] = KUBEADM.1.into();
        self.objects.create(cluster).await;
        self.objects
            .status(
                BYO_CLUSTER,
                name,
                json!({"initialization": {"provisioned": true}}),
            )
            .await;
    }

    /// Starts the API server, as kubeadm would have left it: Cluster API takes the control plane for initialised when it finds kubeadm's
    /// ConfigMap.
    pub(crate) async fn serve(&self) -> ControlPlane {
        let plane = ControlPlane::builder()
            .name(&self.name)
            .authority(&self.authority)
            .port(self.port)
            .audit(true)
            .start()
            .await
            .or_fail();
        let config = json!({"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": "{}"}});
        let maps = Api::<ConfigMap>::namespaced(plane.client(), "kube-system");
        let config = serde_json::from_value(config).or_fail();
        maps.create(&PostParams::default(), &config).await.or_fail();
        plane
    }

    pub(crate) fn secret(&self) -> String {
        format!("{}-kubeconfig", self.name)
    }

    /// Has Cluster API look at the control plane. It watches the control plane's kubeconfig no other way.
    pub(crate) async fn poke(&self) {
        let now = format!("{:?}", std::time::SystemTime::now());
        let patch = json!({"metadata": {"annotations": {"poked-at": now}}});
        self.objects.merge(KUBEADM, &self.name, patch).await;
    }

    pub(crate) async fn is_initialized(&self) -> Value {
        byo::is_initialized(&self.objects, &self.name).await
    }

    pub(crate) async fn secret_exists(&self) -> Value {
        self.objects.exists(SECRET, &self.secret()).await
    }

    pub(crate) async fn cluster(&self) -> Value {
        self.objects.exists(CLUSTER, &self.name).await
    }
}
