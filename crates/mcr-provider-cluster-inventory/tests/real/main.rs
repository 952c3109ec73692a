//! The provider beside programs of other projects: the exec plugins of the Cluster Inventory API, and Open Cluster Management as a
//! cluster manager. Hub and members are real API servers.
//!
//! The tests run if `MCR_UPSTREAM_INVENTORY` names a folder with:
//!
//! - `clusterprofiles.yaml`: the CRD of ClusterProfile of the Cluster Inventory API;
//! - `kubeconfig-secretreader`, `secretreader`: its plugins;
//! - `registration`, `ocm-crds/`: the registration controller of Open Cluster Management, and the CRDs of its hub.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod crd;
mod ocm;
mod plugins;
#[path = "../support/mod.rs"]
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use mcr_core::{Cluster, ClusterState, Fleet, WatchHandle, WatchRequest};
use mcr_provider_cluster_inventory::{AccessProviders, ClusterInventoryProvider};
use mcr_testkit::{
    control_plane::{AuditEvent, AuditMark, ControlPlane, policy_rule},
    e2e::skipped,
    waiting::{self, Background, OrFail},
};
use serde_json::{Value, json};
use support::loopback_policy;

/// The longest wait for anything. Other programs may keep the machine busy.
const PATIENCE: Duration = Duration::from_secs(120);

const PROFILE: (&str, &str) = ("multicluster.x-k8s.io/v1alpha1", "ClusterProfile");
/// The namespace of the inventory.
const FLEET: &str = "fleet";

/// The folder with the programs. None: the test reports that it is skipped.
fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("MCR_UPSTREAM_INVENTORY").map(PathBuf::from);
    if folder.is_none() {
        skipped(test, "MCR_UPSTREAM_INVENTORY names no folder with the programs");
    }
    folder
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A hub with this CRD of ClusterProfile, and the namespace of the inventory.
async fn hub(crd: Value) -> ControlPlane {
    let hub = ControlPlane::builder()
        .name("hub")
        .audit(true)
        .crd(crd)
        .with_controller_manager()
        .start()
        .await
        .or_fail();
    namespace(&hub, FLEET).await;
    hub
}

async fn namespace(hub: &ControlPlane, name: &str) {
    let namespace = json!({"metadata": {"name": name}});
    create(&hub.client(), "v1", "Namespace", None, namespace).await;
}

async fn member(name: &str) -> ControlPlane {
    ControlPlane::builder()
        .name(name)
        .audit(true)
        .start()
        .await
        .or_fail()
}

fn api(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>, mut object: Value) {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let object = serde_json::from_value(object).unwrap();
    api(client, api_version, kind, namespace)
        .create(&PostParams::default(), &object)
        .await
        .or_fail();
}

fn profiles(client: &Client) -> Api<DynamicObject> {
    api(client, PROFILE.0, PROFILE.1, Some(FLEET))
}

/// Merges this into the status.
async fn status(api: &Api<DynamicObject>, name: &str, status: Value) -> Value {
    let patch = Patch::Merge(json!({"status": status}));
    let there = api
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .or_fail();
    serde_json::to_value(there).unwrap()
}

/// A condition of a status.
fn condition(type_: &str, status: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "Why", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

async fn eventually(what: &str, so: impl FnMut() -> bool) {
    waiting::eventually(PATIENCE, what, so).await;
}

/// A fleet of the inventory, with exactly the rights of the manifest in the hub.
struct Running {
    fleet: Fleet,
    running: Background<()>,
}

impl Running {
    async fn start(hub: &ControlPlane, providers: AccessProviders, plugins: &[&Path]) -> Self {
        let rule = policy_rule(["multicluster.x-k8s.io"], ["clusterprofiles"], ["list", "watch"]);
        let user = hub
            .user("consumer")
            .rules_in(FLEET, [rule])
            .create()
            .await
            .or_fail();
        let provider = ClusterInventoryProvider::builder()
            .client(user.client().await.or_fail())
            .namespace(FLEET)
            .access_providers(providers)
            .build()
            .or_fail();
        let fleet = Fleet::builder()
            .provider(provider)
            .settings(|settings| settings.access_policy = loopback_policy(plugins))
            .build();
        let running = Background::start({
            let fleet = fleet.clone();
            |stop| async move { fleet.run(stop).await }
        });
        Self { fleet, running }
    }

    fn state(&self, name: &str) -> Option<ClusterState> {
        self.fleet.get(name).ok().map(|cluster| cluster.state())
    }

    async fn ready(&self, name: &str) -> Cluster {
        eventually(&format!("{name} is ready"), || {
            self.state(name).is_some_and(|state| state == ClusterState::Ready)
        })
        .await;
        self.fleet.get(name).unwrap()
    }

    async fn waits(&self, name: &str, why: &str) {
        eventually(
            &format!("{name} waits: {why}"),
            || matches!(self.state(name), Some(ClusterState::Suspended { reason }) if reason.contains(why)),
        )
        .await;
    }
}

/// Watches the ConfigMaps of a cluster until it is synced.
async fn config_maps(cluster: &Cluster) -> WatchHandle {
    let maps = cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap();
    eventually("its objects are listed", || maps.status().synced).await;
    maps
}

/// The requests of a user since then.
async fn requests(plane: &ControlPlane, user: &str, since: AuditMark) -> Vec<AuditEvent> {
    let audit = plane.audit_since(since).await.or_fail();
    let of_user = audit
        .events()
        .filter(|event| event.user.ends_with(user) && event.is_start());
    of_user.cloned().collect()
}

/// The LISTs of this resource by a user.
async fn lists(plane: &ControlPlane, user: &str, resource: &str, since: AuditMark) -> usize {
    let requests = requests(plane, user, since).await;
    requests.iter().filter(|event| event.is_list(resource)).count()
}
