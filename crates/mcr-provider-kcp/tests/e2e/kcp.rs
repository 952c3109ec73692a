//! A kcp with the workspace of the export, and the workspaces of its consumers.

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::Kubeconfig,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr_core::{Access, Trust};
use mcr_kcp_double::{Kcp as Double, KcpServer};
use mcr_provider_kcp::KcpProvider;
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::{
    api::{self, Database, DatabaseStatus, EXPORT},
    until,
};

/// A kcp, the double or a real one.
pub(crate) struct Kcp {
    /// A kubeconfig of the admin.
    admin: Kubeconfig,
    /// The address without a path.
    base: String,
    /// The path of the workspace with the export.
    provider: String,
    double: Option<KcpServer>,
    /// The beginning of the names of workspaces.
    prefix: String,
}

/// A workspace that has bound the export, or is about to.
pub(crate) struct Consumer {
    /// The id of its logical cluster.
    pub(crate) id: String,
    path: String,
    provider: String,
    client: Client,
}

impl Kcp {
    /// A kcp with the export. The names of workspaces have the purpose, because tests may share a real kcp.
    pub(crate) async fn start(purpose: &str) -> Self {
        let real = std::env::var_os("MCR_KCP_KUBECONFIG");
        let double = match real {
            Some(_) => None,
            None => Some(Double::builder().shards(2).serve().await.or_fail()),
        };
        let admin = match (&real, &double) {
            (_, Some(double)) => Kubeconfig::from_yaml(&double.kubeconfig("root")).or_fail(),
            (path, None) => Kubeconfig::read_from(path.as_deref().unwrap_or_default()).or_fail(),
        };
        let config = config(&admin).await;
        let address = config.cluster_url.to_string();
        let base = address.split("/clusters/").next().unwrap_or_default();
        let mut kcp = Self {
            base: base.trim_end_matches('/').to_owned(),
            admin,
            provider: String::new(),
            double,
            prefix: format!("e2e-{purpose}-{}-", std::process::id()),
        };
        let (provider, _) = kcp.workspace("provider", None).await;
        let client = kcp.client(&provider).await;
        create(
            &client,
            "apis.kcp.io/v1alpha1",
            "APIResourceSchema",
            api::schema(),
        )
        .await;
        create(&client, "apis.kcp.io/v1alpha2", "APIExport", api::export()).await;
        kcp.provider = provider;
        kcp
    }

    /// The provider whose clusters are the consumers.
    pub(crate) fn consumers(&self) -> KcpProvider {
        let kubeconfig = serde_json::to_string(&self.kubeconfig(&self.provider)).or_fail();
        KcpProvider::builder()
            .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
            .slice(EXPORT)
            .build()
            .or_fail()
    }

    /// A new workspace that binds the export: on this shard of the double, anywhere in a real kcp.
    pub(crate) async fn consumer(&self, name: &str, shard: &str) -> Consumer {
        let shard = self.double.is_some().then_some(shard);
        let (path, id) = self.workspace(name, shard).await;
        let consumer = Consumer {
            client: self.client(&path).await,
            provider: self.provider.clone(),
            path,
            id,
        };
        consumer.bind().await;
        consumer
    }

    /// Deletes what the test has made in a real kcp.
    pub(crate) async fn remove(self, consumers: impl IntoIterator<Item = Consumer>) {
        if self.double.is_some() {
            return;
        }
        let workspaces = resource(&self.client("root").await, TENANCY, "Workspace");
        let paths = consumers.into_iter().map(|consumer| consumer.path);
        for path in paths.chain([self.provider]) {
            let name = path.rsplit(':').next().unwrap_or_default();
            workspaces.delete(name, &DeleteParams::default()).await.or_fail();
        }
    }

    async fn workspace(&self, name: &str, shard: Option<&str>) -> (String, String) {
        let name = format!("{}{name}", self.prefix);
        let root = self.client("root").await;
        let location = shard.map(|shard| json!({"selector": {"matchLabels": {"name": shard}}}));
        let object = json!({"metadata": {"name": name}, "spec": {"location": location}});
        create(&root, TENANCY, "Workspace", object).await;
        let workspaces = resource(&root, TENANCY, "Workspace");
        let id = until(format!("the workspace {name} is ready"), async || {
            let workspace = workspaces.get(&name).await.or_fail().data;
            let id = workspace["spec"]["cluster"].as_str().map(ToOwned::to_owned);
            id.filter(|_| workspace["status"]["phase"] == "Ready")
        });
        (format!("root:{name}"), id.await)
    }

    fn kubeconfig(&self, path: &str) -> Kubeconfig {
        let mut kubeconfig = self.admin.clone();
        for cluster in kubeconfig
            .clusters
            .iter_mut()
            .filter_map(|named| named.cluster.as_mut())
        {
            cluster.server = Some(format!("{}/clusters/{path}", self.base));
        }
        kubeconfig
    }

    async fn client(&self, path: &str) -> Client {
        Client::try_from(config(&self.kubeconfig(path)).await).or_fail()
    }
}

impl Consumer {
    /// Its name in a fleet, as the child `kcp` of `multi`.
    pub(crate) fn cluster(&self) -> String {
        format!("kcp#{}", self.id)
    }

    /// Binds the export, and waits until its API is served.
    pub(crate) async fn bind(&self) {
        let binding = json!({
            "metadata": {"name": EXPORT},
            "spec": {"reference": {"export": {"path": self.provider, "name": EXPORT}}},
        });
        create(&self.client, "apis.kcp.io/v1alpha2", "APIBinding", binding).await;
        until(format!("{} is bound", self.path), async || {
            let binding = self.binding().await?;
            let mut conditions = binding.data["status"]["conditions"].as_array()?.iter();
            conditions
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
                .then_some(())
        })
        .await;
        until(format!("{} serves databases", self.path), async || {
            self.databases().list(&Default::default()).await.ok()
        })
        .await;
    }

    /// Asks for the end of the binding. Finalizers may hold it.
    pub(crate) async fn unbind(&self) {
        self.bindings()
            .delete(EXPORT, &DeleteParams::default())
            .await
            .or_fail();
    }

    fn bindings(&self) -> Api<DynamicObject> {
        resource(&self.client, "apis.kcp.io/v1alpha2", "APIBinding")
    }

    pub(crate) async fn binding(&self) -> Option<DynamicObject> {
        self.bindings().get_opt(EXPORT).await.or_fail()
    }

    /// Waits until its binding is gone.
    pub(crate) async fn is_unbound(&self) {
        until(format!("{} is unbound", self.path), async || {
            self.binding().await.is_none().then_some(())
        })
        .await;
    }

    /// Its databases in the namespace `default`.
    pub(crate) fn databases(&self) -> Api<Database> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create(&self, name: &str, replicas: i32) {
        let database = Database::new(name, api::DatabaseSpec { replicas });
        // The namespace of a new workspace may still be missing.
        until(format!("{} takes {name}", self.path), async || {
            self.databases()
                .create(&PostParams::default(), &database)
                .await
                .ok()
        })
        .await;
    }

    pub(crate) async fn scale(&self, name: &str, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.databases()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .or_fail();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.databases()
            .delete(name, &DeleteParams::default())
            .await
            .or_fail();
    }

    /// Waits until a database is reported to have these replicas, and nothing else.
    pub(crate) async fn reports(&self, name: &str, replicas: i32) {
        let wanted = DatabaseStatus {
            replicas: Some(replicas),
            message: None,
        };
        let what = format!("{} in {} has {replicas} replicas", name, self.path);
        until(what, async || {
            let database = self.databases().get(name).await.or_fail();
            (database.status.as_ref() == Some(&wanted)).then_some(())
        })
        .await;
    }

    /// Waits until a database is gone, its finalizer included.
    pub(crate) async fn has_no(&self, name: &str) {
        until(format!("{name} in {} is gone", self.path), async || {
            let database = self.databases().get_opt(name).await.or_fail();
            database.is_none().then_some(())
        })
        .await;
    }
}

async fn config(kubeconfig: &Kubeconfig) -> kube::Config {
    kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &Default::default())
        .await
        .or_fail()
}

const TENANCY: &str = "tenancy.kcp.io/v1alpha1";

/// The cluster-scoped objects of a kind.
fn resource(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(client.clone(), &resource)
}

/// Creates an object. A workspace that was made just now may not let the admin in at once.
async fn create(client: &Client, version: &str, kind: &str, mut object: Value) {
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    let object: DynamicObject = serde_json::from_value(object).or_fail();
    let api = resource(client, version, kind);
    until(format!("{kind} is created"), async || {
        match api.create(&PostParams::default(), &object).await {
            Ok(made) => Some(made),
            Err(error) => {
                let unknown = matches!(&error, kube::Error::Api(status) if matches!(status.code, 403 | 404));
                assert!(unknown, "{error}");
                None
            }
        }
    })
    .await;
}
