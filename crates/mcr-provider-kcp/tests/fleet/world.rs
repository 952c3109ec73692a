//! A kcp with an export of widgets, a fleet of its consumers, and what the tests of this folder share.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr_core::{
    Access, ChangeSink, Cluster, ClusterState, Fleet, FleetSettings, ObjectChange, Provider, Trust,
    WatchHandle, WatchRequest,
};
use mcr_kcp_double::{Kcp, KcpBuilder, KcpServer, KcpWorkspace};
use mcr_provider_kcp::{KcpProvider, KcpProviderBuilder};
use mcr_testkit::waiting::Background;
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::json;

/// The limit for any wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const BINDINGS: &str = "apibindings.apis.kcp.io";

/// A kcp with the workspace `root:provider`, which exports widgets and claims ConfigMaps.
pub(crate) struct World {
    pub(crate) server: KcpServer,
    pub(crate) provider: KcpWorkspace,
}

pub(crate) fn widgets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.io", "v1", "Widget"), "widgets")
}

impl World {
    pub(crate) async fn start(builder: KcpBuilder) -> Self {
        let server = builder.serve().await.or_fail();
        let provider = server.kcp().create_workspace("root:provider").or_fail();
        for object in [
            json!({
                "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
                "metadata": {"name": "v1.widgets.example.io"},
                "spec": {
                    "group": "example.io", "scope": "Namespaced",
                    "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }],
                },
            }),
            json!({
                "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
                "spec": {
                    "resources": [{"name": "widgets", "group": "example.io", "schema": "v1.widgets.example.io"}],
                    "permissionClaims": [{"group": "", "resource": "configmaps", "verbs": ["*"]}],
                },
            }),
        ] {
            provider.create(object).or_fail();
        }
        Self { server, provider }
    }

    pub(crate) async fn with_shards(shards: usize) -> Self {
        Self::start(Kcp::builder().shards(shards)).await
    }

    pub(crate) fn builder(&self) -> KcpProviderBuilder {
        let kubeconfig = self.server.kubeconfig("root:provider");
        KcpProvider::builder()
            .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
            .slice("widgets")
    }

    /// A workspace that binds the export, with the widget `default/w`.
    pub(crate) fn consumer(&self, name: &str, shard: &str) -> KcpWorkspace {
        let workspace = self
            .server
            .kcp()
            .create_workspace_on(&format!("root:{name}"), shard)
            .or_fail();
        bind(&workspace);
        workspace
    }
}

pub(crate) fn bind(workspace: &KcpWorkspace) {
    bind_as(workspace, "widgets", "widgets");
}

pub(crate) fn unbind(workspace: &KcpWorkspace) {
    workspace.delete(BINDINGS, "widgets").or_fail();
}

pub(crate) fn widget(workspace: &KcpWorkspace, name: &str, color: &str) {
    workspace
        .apply(json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"},
            "spec": {"color": color},
        }))
        .or_fail();
}

/// A running fleet.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    running: Background<()>,
}

impl Running {
    pub(crate) fn start(provider: impl Provider) -> Self {
        Self::start_with(provider, |_| {})
    }

    pub(crate) fn start_with(provider: impl Provider, change: impl FnOnce(&mut FleetSettings)) -> Self {
        let fleet = Fleet::builder()
            .provider(provider)
            .settings(|settings| {
                Arc::make_mut(&mut settings.watch).retry_cap = Duration::from_millis(200);
                settings.reconnect_cap = Duration::from_millis(200);
                change(settings);
            })
            .build();
        Self::of(fleet)
    }

    pub(crate) fn of(fleet: Fleet) -> Self {
        let runs = fleet.clone();
        Self {
            fleet,
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    pub(crate) async fn discovered(&self) {
        tokio::time::timeout(PATIENCE, self.fleet.discovered())
            .await
            .or_fail();
    }

    pub(crate) async fn engaged(&self, name: &str) -> Cluster {
        eventually(PATIENCE, format!("{name} is engaged"), || {
            self.fleet.get(name).ok()
        })
        .await
    }

    pub(crate) async fn ready(&self, name: &str) -> Cluster {
        let cluster = self.engaged(name).await;
        reaches(&cluster, |state| state.is_ready()).await;
        cluster
    }

    pub(crate) async fn left(&self, name: &str) {
        eventually(PATIENCE, format!("{name} leaves"), || {
            self.fleet.get(name).is_err()
        })
        .await;
    }

    /// Why the last discovery failed.
    pub(crate) async fn error(&self) -> String {
        eventually(PATIENCE, "the discovery fails", || {
            self.fleet.providers()[0].last_error.clone()
        })
        .await
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

pub(crate) async fn reaches(cluster: &Cluster, wanted: impl Fn(&ClusterState) -> bool) -> ClusterState {
    let state = tokio::time::timeout(PATIENCE, cluster.wait_for(&wanted)).await;
    state.unwrap_or_else(|_| panic!("{} is {:?}", cluster.name(), cluster.state()))
}

/// The changes of the objects of a kind in a cluster.
pub(crate) struct Witness {
    cluster: Cluster,
    request: WatchRequest,
    lines: Arc<Lines>,
    _watch: WatchHandle,
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl ChangeSink for Lines {
    fn changed(&self, change: &ObjectChange) {
        let sign = match (&change.old, &change.new) {
            (None, _) => '+',
            (_, Some(_)) => '~',
            (_, None) => '-',
        };
        self.0
            .lock()
            .unwrap()
            .push(format!("{sign}{}", change.key().unwrap()));
    }
}

impl Witness {
    pub(crate) fn of(cluster: &Cluster, request: WatchRequest) -> Self {
        let lines = Arc::<Lines>::default();
        Self {
            _watch: cluster.watch(request.clone(), Some(lines.clone())).or_fail(),
            cluster: cluster.clone(),
            request,
            lines,
        }
    }

    pub(crate) fn of_widgets(cluster: &Cluster) -> Self {
        Self::of(cluster, WatchRequest::resource(&widgets()))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    /// The objects as `namespace/name color`.
    pub(crate) fn objects(&self) -> Vec<String> {
        let Ok(store) = self.cluster.store_of::<DynamicObject>(&self.request) else {
            return Vec::new();
        };
        let Ok(keys) = store.keys() else { return Vec::new() };
        let mut objects: Vec<String> = keys
            .iter()
            .filter_map(|key| Some((key, store.get(key).ok()??)))
            .map(|(key, object)| {
                format!(
                    "{key} {}",
                    object.data["spec"]["color"].as_str().unwrap_or_default()
                )
            })
            .collect();
        objects.sort();
        objects
    }

    pub(crate) async fn holds(&self, objects: &[&str]) {
        let name = self.cluster.name();
        eventually(PATIENCE, format!("{name} holds {objects:?}"), || {
            (self.objects() == objects).then_some(())
        })
        .await;
    }
}

pub(crate) const WIDGETS: &str = "widgets.example.io";

/// Creates an APIBinding of an export of `root:provider`, which accepts its claim on ConfigMaps.
pub(crate) fn bind_as(workspace: &KcpWorkspace, binding: &str, export: &str) {
    workspace
        .create(json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": binding},
            "spec": {
                "reference": {"export": {"path": "root:provider", "name": export}},
                "permissionClaims": [{
                    "group": "", "resource": "configmaps", "verbs": ["*"], "selector": {"matchAll": true},
                    "state": "Accepted",
                }],
            },
        }))
        .or_fail();
}

/// The APIBindings of a workspace, as its owner reaches them.
pub(crate) fn bindings_of(world: &World, workspace: &KcpWorkspace) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apis.kcp.io", "v1alpha2", "APIBinding");
    let kind = ApiResource::from_gvk_with_plural(&kind, "apibindings");
    Api::all_with(world.server.kcp().client(workspace.id()), &kind)
}

/// Sets the condition `Ready` of the binding `widgets`, as kcp's control plane does.
pub(crate) async fn set_ready(world: &World, workspace: &KcpWorkspace, status: &str) {
    let mut binding = workspace.get(BINDINGS, "widgets").expect("it is bound");
    for condition in binding["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Ready" {
            condition["status"] = status.into();
            condition["reason"] = "Checked".into();
        }
    }
    let patch = Patch::Merge(json!({"status": {"conditions": binding["status"]["conditions"]}}));
    bindings_of(world, workspace)
        .patch_status("widgets", &PatchParams::default(), &patch)
        .await
        .or_fail();
}

/// Waits until the provider has handled all bindings of a shard: a watch reports a new workspace after all that happened before.
pub(crate) async fn caught_up(world: &World, running: &Running, shard: &str) {
    let number = world.provider.list("configmaps", "default").len();
    let mark = format!("mark-{number}");
    world
        .provider
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": mark, "namespace": "default"}}))
        .or_fail();
    let workspace = world.consumer(&mark, shard);
    running.ready(workspace.id()).await;
}

/// How often a shard was asked to list a resource in the virtual workspace.
pub(crate) fn lists(world: &World, shard: &str, resource: &str) -> usize {
    let shard = world.server.kcp().shard(shard).expect("there is such a shard");
    let audit = shard.audit();
    audit.count(|event| event.is_list(resource) && event.uri.contains("/clusters/*/"))
}

impl Witness {
    /// Waits until the store has the objects of these keys, and no other ones.
    pub(crate) async fn holds_named(&self, keys: &[&str]) {
        let name = self.cluster.name();
        let is_of = |object: &String, key: &&str| object.split(' ').next() == Some(key);
        eventually(PATIENCE, format!("{name} holds {keys:?}"), || {
            let objects = self.objects();
            let same = objects.iter().zip(keys).all(|(object, key)| is_of(object, key));
            (objects.len() == keys.len() && same).then_some(())
        })
        .await;
    }
}
