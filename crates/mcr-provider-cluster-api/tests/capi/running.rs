//! A fleet over the provider, with a controller that answers ConfigMaps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use mcr::{Action, Cluster, Controller, Fleet, Manager, ManagerError, Request};
use mcr_core::{ClusterState, TransportSettings};
use mcr_provider_cluster_api::{ClusterApiProvider, ClusterApiProviderBuilder};
use mcr_testkit::discovery::loopback_policy;
use mcr_testkit::waiting::{Background, OrFail, eventually};
use serde_json::json;

use crate::PATIENCE;
use crate::management::Hub;

/// The key of a cluster's answer.
pub(crate) fn key(cluster: &str) -> String {
    cluster.replace('/', "_")
}

/// The reconciles that failed.
type Failed = Mutex<Vec<String>>;

/// Answers in the ConfigMap, once.
async fn answer(request: Request<ConfigMap>, failed: Arc<Failed>) -> Result<Action, kube::Error> {
    let cluster = request.cluster.name().to_string();
    let is_answered = |map: &ConfigMap| {
        map.data
            .as_ref()
            .is_some_and(|data| data.contains_key(&key(&cluster)))
    };
    if request.live().is_some_and(|map| !is_answered(map)) {
        let patch = Patch::Merge(json!({"data": {key(&cluster): request.cluster.epoch().to_string()}}));
        let maps = request
            .cluster
            .namespaced::<ConfigMap>(request.namespace().unwrap_or_default());
        let written = maps.patch(request.name(), &PatchParams::default(), &patch).await;
        written.inspect_err(|why| {
            failed
                .lock()
                .unwrap()
                .push(format!("{cluster} {}: {why}", request.name()))
        })?;
    }
    Ok(Action::await_change())
}

/// A manager with one controller.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    failed: Arc<Failed>,
    background: Background<Result<(), ManagerError>>,
}

impl Running {
    /// Its controller answers the ConfigMaps with this tag.
    pub(crate) fn start(tag: &str, provider: ClusterApiProviderBuilder) -> Self {
        let failed = Arc::<Failed>::default();
        let selector = format!("capi={tag}");
        let controller = Controller::<ConfigMap>::new("answer")
            .watch_request(|watch| watch.namespace("default").labels(selector))
            .build(answer, failed.clone());
        let manager = Manager::builder()
            .provider(provider.build().or_fail())
            .settings(|all| {
                all.access_policy = loopback_policy();
                // The servers of this suite stand for many clusters.
                all.allow_duplicates = true;
                // Short times where the defaults would have a test wait for half a minute.
                all.probe_after = Duration::from_secs(2);
                all.reconnect_cap = Duration::from_secs(2);
                let mut transport = TransportSettings::default();
                transport.rotation_spread = Duration::from_secs(1);
                all.transport = transport.into();
            })
            .controller(controller)
            .build()
            .or_fail();
        Self {
            fleet: manager.fleet().clone(),
            failed,
            background: Background::start(|stop| manager.run_until(stop)),
        }
    }

    pub(crate) async fn ready(&self, name: &str) -> Cluster {
        eventually(PATIENCE, format!("{name} is ready"), || {
            let cluster = self.fleet.get(name).ok();
            cluster.filter(|cluster| cluster.state() == ClusterState::Ready)
        })
        .await
    }

    pub(crate) async fn is_gone(&self, name: &str) {
        let what = format!("{name} is not in the fleet");
        eventually(PATIENCE, what, || self.fleet.get(name).is_err()).await;
    }

    /// Waits until a cluster is shown in this state with this in its reason or warnings.
    pub(crate) async fn shows(&self, name: &str, state: &str, part: &str) -> String {
        eventually(PATIENCE, format!("{name} is {state} with {part:?}"), || {
            let clusters = self.fleet.snapshot().clusters.into_iter();
            let status = clusters
                .into_iter()
                .find(|status| status.name == *name && status.state == state)?;
            let texts: Vec<&str> = status
                .reason
                .iter()
                .chain(&status.warnings)
                .map(|text| &**text)
                .collect();
            Some(texts.join("; ")).filter(|text| text.contains(part))
        })
        .await
    }

    /// Waits until a cluster is known, with this in the reason why it is not engaged.
    pub(crate) async fn waits(&self, name: &str, part: &str) -> String {
        self.shows(name, "Suspended", part).await
    }

    pub(crate) fn failed(&self) -> Vec<String> {
        self.failed.lock().unwrap().clone()
    }

    pub(crate) async fn stop(self) {
        self.background.stop().await.or_fail();
    }
}

impl Hub {
    /// A provider with exactly the rights of the manifest.
    pub(crate) async fn provider(&self) -> ClusterApiProviderBuilder {
        let client = self.robot.client().await.or_fail();
        ClusterApiProvider::builder()
            .client(client)
            .namespace(self.namespace())
    }
}
