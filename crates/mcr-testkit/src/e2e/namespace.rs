//! A namespace for one test, and the objects that the test puts there.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, Resource};

use serde_json::{Value, json};

use super::{DEADLINE, E2e, E2eCluster, print};
use crate::request::{create, send};

/// The label of the ConfigMaps of a test.
const TEST_LABEL: &str = "mcr-e2e";
/// The key in a ConfigMap with the name of the cluster that has answered it.
const ANSWER_KEY: &str = "cluster";

/// A namespace of a test. Call [`remove`](Self::remove) at the end of the test. Dropping the value, for example in a
/// panic, also tries to remove the namespace.
#[derive(Debug)]
pub struct E2eNamespace {
    name: String,
    /// The label value that all ConfigMaps of the test have.
    label_value: String,
    /// The owner of cluster-wide objects, so that they are deleted with the namespace.
    owner: Option<OwnerReference>,
    namespaces: Api<Namespace>,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    removed: bool,
}

impl E2e {
    /// Makes a new namespace with a unique name. `purpose` is part of the name.
    ///
    /// # Panics
    ///
    /// If the cluster does not answer, or refuses the name.
    pub async fn namespace(&self, cluster: E2eCluster, purpose: &str) -> E2eNamespace {
        let client = self.client(cluster).await;
        E2eNamespace::make(self, cluster, client, purpose).await
    }
}

impl E2eNamespace {
    async fn make(e2e: &E2e, cluster: E2eCluster, client: Client, purpose: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{purpose}-{}-{count}", std::process::id());
        let namespaces = Api::<Namespace>::all(client);
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = match namespaces.create(&PostParams::default(), &object).await {
            Ok(made) => made,
            Err(error) => panic!("the namespace {name} can't be made in {cluster}: {error}"),
        };
        Self {
            name,
            owner: made.owner_ref(&()),
            label_value: format!("{purpose}-{}", std::process::id()),
            namespaces,
            kubeconfig: e2e.kubeconfig(cluster),
            kubectl: e2e.kubectl(),
            removed: false,
        }
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Selects the ConfigMaps of [`ask`](Self::ask) in all namespaces that were made for the same purpose.
    pub fn selector(&self) -> String {
        format!("{TEST_LABEL}={}", self.label_value)
    }

    /// Creates a ConfigMap that waits for an [`answer`], or resets an existing one so that it waits again.
    ///
    /// # Panics
    ///
    /// If the cluster refuses an object.
    pub async fn ask(&self, name: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {TEST_LABEL: self.label_value}},
            "data": {ANSWER_KEY: ""},
        });
        let params = PatchParams::apply("mcr-e2e").force();
        if let Err(error) = self.maps().patch(name, &params, &Patch::Apply(map)).await {
            panic!("the ConfigMap {}/{name} can't be made: {error}", self.name);
        }
    }

    /// Waits until the cluster of this name has answered a ConfigMap.
    ///
    /// # Panics
    ///
    /// If there is no answer within the [`DEADLINE`].
    pub async fn answered(&self, name: &str, by: &str) {
        let maps = self.maps();
        let started = tokio::time::Instant::now();
        let mut last = String::from("nothing");
        while started.elapsed() < DEADLINE {
            match maps.get(name).await {
                Ok(map) => match map.data.unwrap_or_default().remove(ANSWER_KEY) {
                    Some(answer) if answer == by => return,
                    answer => last = format!("{answer:?}"),
                },
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!(
            "the ConfigMap {}/{name} is not answered by {by} within {DEADLINE:?}: {last}",
            self.name
        );
    }

    /// Creates a ServiceAccount with a ClusterRole in the whole cluster. The role binding is deleted with the
    /// namespace.
    ///
    /// # Panics
    ///
    /// If the cluster refuses an object.
    pub async fn account(&self, name: &str, cluster_role: &str) {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.name);
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{}-{name}", self.name), "ownerReferences": self.owner.as_slice() },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": cluster_role },
            "subjects": [self.subject(name)],
        });
        let bindings = format!("/apis/{group}/v1/clusterrolebindings");
        for (path, object) in [(accounts, account), (bindings, binding)] {
            if let Err(error) = create(&self.client(), &path, &object).await {
                panic!(
                    "the ServiceAccount {}/{name} can't be made a {cluster_role}: {error}",
                    self.name
                );
            }
        }
    }

    /// A ServiceAccount of the namespace, as the subject of a binding.
    pub fn subject(&self, account: &str) -> Value {
        json!({ "kind": "ServiceAccount", "name": account, "namespace": self.name })
    }

    /// A kubeconfig with a new token of a ServiceAccount of the namespace. The token is valid for an hour.
    ///
    /// # Panics
    ///
    /// If the cluster gives no token, or the kubeconfig of the cluster is not usable.
    pub async fn kubeconfig(&self, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.name);
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] } });
        let token = match send(&self.client(), "POST", &path, &request).await {
            Ok(answer) => answer["status"]["token"].clone(),
            Err(error) => panic!("no token for the ServiceAccount {}/{account}: {error}", self.name),
        };
        let clusters = match Kubeconfig::read_from(&self.kubeconfig) {
            Ok(kubeconfig) => kubeconfig.clusters,
            Err(error) => panic!("{}: {error}", self.kubeconfig.display()),
        };
        let cluster = clusters.first().map(|cluster| &cluster.name);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": account,
            "clusters": clusters,
            "contexts": [{"name": account, "context": {"cluster": cluster, "user": account, "namespace": self.name}}],
            "users": [{"name": account, "user": {"token": token}}],
        });
        kubeconfig.to_string()
    }

    /// An `Api` for a kind in the namespace, with the rights of the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.name)
    }

    fn client(&self) -> Client {
        self.namespaces.clone().into_client()
    }

    fn maps(&self) -> Api<ConfigMap> {
        self.api()
    }

    /// Requests the deletion of the namespace and all its objects. Does not wait until they are gone.
    ///
    /// # Panics
    ///
    /// If the cluster refuses.
    pub async fn remove(mut self) {
        self.removed = true;
        let deleted = self.namespaces.delete(&self.name, &DeleteParams::default()).await;
        if let Err(error) = deleted
            && !matches!(&error, kube::Error::Api(status) if status.code == 404)
        {
            panic!("the namespace {} can't be deleted: {error}", self.name);
        }
    }
}

impl Drop for E2eNamespace {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        // With `kubectl`, because `drop` can't await, and the runtime of the client may have ended.
        let deleted = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["delete", "namespace", &self.name])
            .args(["--wait=false", "--ignore-not-found", "--request-timeout=10s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !deleted.is_ok_and(|status| status.success()) {
            print(&format!("the namespace {} stays", self.name));
        }
    }
}

/// The reconcile of a controller under test for a ConfigMap of [`E2eNamespace::ask`]: writes the name of the cluster
/// into the ConfigMap.
///
/// # Errors
///
/// The error of the API server.
pub async fn answer(maps: &Api<ConfigMap>, name: &str, cluster: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"data": {ANSWER_KEY: cluster}}));
    maps.patch(name, &PatchParams::default(), &patch).await.map(drop)
}
