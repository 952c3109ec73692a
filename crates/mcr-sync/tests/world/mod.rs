//! The clusters of the tests, on simulated API servers.
// Each test program uses some of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod gate;
pub mod widgets;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::{
    Access, BoxError, BuiltController, Cluster, ClusterName, ClusterSelector, ClusterSpec, ControllerHandle,
    Fleet, Manager, ManagerError,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_sync::{ObjectSync, SourceName, hashed};
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::{Value, json};

pub const LIMIT: Duration = Duration::from_secs(60);

pub fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

/// The source clusters `team-a` and `team-b`, and the target clusters `berlin` and `lyon`.
pub struct World {
    pub team_a: SimCluster,
    pub team_b: SimCluster,
    pub berlin: SimCluster,
    pub lyon: SimCluster,
    pub clusters: ClustersHandle,
    pub running: Option<Background<Result<(), ManagerError>>>,
    pub handles: Vec<ControllerHandle>,
    /// What stands before `team-a` and `berlin`, if the program was started with `begin`.
    pub team_gate: gate::Gate,
    pub berlin_gate: gate::Gate,
}

pub fn spec(cluster: &SimCluster, role: &str) -> ClusterSpec {
    ClusterSpec::named(cluster.name(), Access::from(cluster.client()))
        .unwrap()
        .label("role", role)
}

impl World {
    pub fn new() -> Self {
        let cluster = |name: &str| SimCluster::builder().name(name).build();
        Self {
            team_a: cluster("team-a"),
            team_b: cluster("team-b"),
            berlin: cluster("berlin"),
            lyon: cluster("lyon"),
            clusters: ClustersProvider::new().handle(),
            running: None,
            handles: Vec::new(),
            team_gate: gate::Gate::default(),
            berlin_gate: gate::Gate::default(),
        }
    }

    /// Starts a program with this sync, and all four clusters in its fleet.
    pub fn start<S, T>(&mut self, sync: ObjectSync<S, T>)
    where
        S: kube::Resource + serde::de::DeserializeOwned + Send + Sync + 'static,
        T: kube::Resource + serde::de::DeserializeOwned + serde::Serialize + Send + Sync + 'static,
    {
        let controller = sync
            .from(ClusterSelector::label("role", "source"))
            .build()
            .unwrap();
        self.run([controller], "");
    }

    /// Starts a program with these controllers, and all four clusters in its fleet except the absent one.
    pub fn run(&mut self, controllers: impl IntoIterator<Item = BuiltController>, absent: &str) {
        let provider = ClustersProvider::new();
        self.clusters = provider.handle();
        for (cluster, role) in [
            (&self.team_a, "source"),
            (&self.team_b, "source"),
            (&self.berlin, "target"),
            (&self.lyon, "target"),
        ] {
            if cluster.name() != absent {
                self.clusters.add(spec(cluster, role));
            }
        }
        let controllers: Vec<_> = controllers.into_iter().collect();
        self.handles = controllers.iter().map(BuiltController::handle).collect();
        let manager = controllers
            .into_iter()
            .fold(Manager::builder(), |manager, controller| {
                manager.controller(controller)
            });
        let manager = manager.provider(provider).build().unwrap();
        self.running = Some(Background::start(|stop| manager.run_until(stop)));
    }

    pub async fn stop(&mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }
}

pub fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

pub fn key(cluster: &str, name: &str) -> String {
    let source = SourceName {
        cluster,
        namespace: Some("default"),
        name,
    };
    format!("default/{}", hashed(source))
}

pub async fn gone(cluster: &SimCluster, key: &str) {
    let what = format!("{key} is gone from {}", cluster.name());
    eventually(LIMIT, what, || {
        cluster.get("configmaps", key).is_none().then_some(())
    })
    .await;
}

pub fn writes(cluster: &SimCluster) -> usize {
    let is_write = |verb: &str| ["create", "update", "patch", "delete"].contains(&verb);
    cluster.audit().count(|event| is_write(&event.verb))
}

pub fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

pub type Widgets = ObjectSync<DynamicObject, DynamicObject>;

/// Creates the ConfigMap `default/{name}`.
pub fn make(cluster: &SimCluster, name: &str, data: Value) {
    cluster.create(map(name, data)).unwrap();
}

pub fn delete(cluster: &SimCluster, kind: &str, name: &str) {
    cluster.delete(kind, &format!("default/{name}")).unwrap();
}

/// Changes an object at once.
pub fn edit(cluster: &SimCluster, kind: &str, key: &str, change: impl FnOnce(&mut Value)) {
    let mut object = cluster.get(kind, key).unwrap();
    change(&mut object);
    cluster.update(object).unwrap();
}

/// Gives a field of `default/{name}` another value.
pub fn change(cluster: &SimCluster, kind: &str, name: &str, field: &str, value: Value) {
    let field = |object: &mut Value| *object.pointer_mut(field).unwrap() = value;
    edit(cluster, kind, &format!("default/{name}"), field);
}

/// Gives the ConfigMap `default/{name}` other data.
pub fn set(cluster: &SimCluster, name: &str, data: Value) {
    change(cluster, "configmaps", name, "/data", data);
}

/// Places a ConfigMap in the cluster that its `at` names.
pub fn at(map: &ConfigMap, _: &Cluster, _: &Fleet) -> Vec<ClusterName> {
    let at = map.data.as_ref().and_then(|data| data.get("at"));
    at.into_iter().map(|at| name(at)).collect()
}

/// Paused time goes on only when every task waits, so all that is ready has run.
pub async fn rest() {
    tokio::time::sleep(LIMIT).await;
}
