//! Objects as JSON: the tests write what providers and users write, and read what Cluster API makes of it.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use mcr_testkit::waiting::OrFail;
use serde_json::Value;
use tokio::time::Instant;

use crate::PATIENCE;

pub(crate) const CLUSTER: (&str, &str) = ("cluster.x-k8s.io/v1beta2", "Cluster");
pub(crate) const SECRET: (&str, &str) = ("v1", "Secret");
pub(crate) const BYO_CLUSTER: (&str, &str) = ("infrastructure.cluster.x-k8s.io/v1beta1", "ByoCluster");
pub(crate) const BYO_CONTROL_PLANE: (&str, &str) =
    ("controlplane.cluster.x-k8s.io/v1beta1", "ByoControlPlane");
pub(crate) const KUBEADM: (&str, &str) = ("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane");

/// The objects of one namespace.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Objects {
    fn api(&self, (version, kind): (&str, &str)) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) async fn create(&self, object: Value) -> Value {
        let kind = (
            object["apiVersion"].as_str().unwrap_or_default(),
            object["kind"].as_str().unwrap_or_default(),
        );
        let typed: DynamicObject = serde_json::from_value(object.clone()).or_fail();
        let created = self.api(kind).create(&PostParams::default(), &typed).await;
        let created = created.unwrap_or_else(|why| panic!("creating {} {}: {why}", kind.1, typed.name_any()));
        serde_json::to_value(created).or_fail()
    }

    pub(crate) async fn merge(&self, kind: (&str, &str), name: &str, patch: Value) {
        let patched = self
            .api(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap_or_else(|why| panic!("changing {} {name}: {why}", kind.1));
    }

    pub(crate) async fn status(&self, kind: (&str, &str), name: &str, status: Value) {
        let patch = Patch::Merge(serde_json::json!({"status": status}));
        let patched = self
            .api(kind)
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patched.unwrap_or_else(|why| panic!("changing the status of {} {name}: {why}", kind.1));
    }

    pub(crate) async fn delete(&self, kind: (&str, &str), name: &str) {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|why| panic!("deleting {} {name}: {why}", kind.1));
    }

    pub(crate) async fn get(&self, kind: (&str, &str), name: &str) -> Option<Value> {
        let object = self.api(kind).get_opt(name).await.or_fail();
        object.map(|object| serde_json::to_value(object).or_fail())
    }

    /// Waits until an object is as wanted, and returns it. `Null` stands for an object that is not there.
    pub(crate) async fn wait(
        &self,
        kind: (&str, &str),
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let started = Instant::now();
        loop {
            let object = self.get(kind, name).await.unwrap_or_default();
            if is(&object) {
                return object;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {} {name} {what}; it is {object:#}",
                kind.1
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn exists(&self, kind: (&str, &str), name: &str) -> Value {
        self.wait(kind, name, "is there", |object| !object.is_null())
            .await
    }

    pub(crate) async fn is_gone(&self, kind: (&str, &str), name: &str) {
        self.wait(kind, name, "is gone", Value::is_null).await;
    }
}

/// The status of a condition: `True`, `False`, `Unknown` or nothing.
pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == name);
    found
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}

pub(crate) fn initialized(cluster: &Value) -> bool {
    cluster["status"]["initialization"]["controlPlaneInitialized"] == true
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
