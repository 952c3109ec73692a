//! A fleet whose clusters a test announces by hand, and what else the tests of several folders share.

#![allow(dead_code, reason = "each folder uses its part")]

#[path = "../../../mcr-watch/tests/driver/log.rs"]
mod log;
pub(crate) mod provider;

use std::{future::pending, io, sync::Arc, time::Duration};

use http::{Request, Response};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use kube::{Client, client::Body};
use mcr_core::{
    Cluster, ClusterName, ClusterSpec, ClusterState, Fleet, FleetBuilder, FleetSettings, WatchHandle,
    WatchRequest,
};
use mcr_testkit::{
    control_plane::{ControlPlane, ServiceAccountUser, policy_rule},
    waiting::{Background, OrFail, eventually},
};

pub(crate) use self::log::Log;
use self::provider::{Clusters, announced};
use crate::harness::{SOON, short_pauses};

pub(crate) fn name(name: &str) -> ClusterName {
    ClusterName::new(name).or_fail()
}

/// A running fleet whose clusters the test announces by hand.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) clusters: Clusters,
    running: Background<()>,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Pauses are short, so that tests are; everything else is as by default.
    pub(crate) fn start_with(change: impl FnOnce(&mut FleetSettings)) -> Self {
        Self::with_settings(|settings| {
            short_pauses(settings);
            change(settings);
        })
    }

    pub(crate) fn with_settings(change: impl FnOnce(&mut FleetSettings)) -> Self {
        Self::with_builder(|fleet| fleet.settings(change))
    }

    pub(crate) fn with_builder(change: impl FnOnce(FleetBuilder) -> FleetBuilder) -> Self {
        let (clusters, provider) = announced(true);
        let fleet = change(Fleet::builder().provider(provider)).build();
        let runs = fleet.clone();
        Self {
            fleet,
            clusters,
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    /// Announces a cluster and waits until it is engaged.
    pub(crate) async fn announce(&self, spec: ClusterSpec) -> Cluster {
        let cluster = spec.name.clone();
        self.clusters.add(spec);
        self.engaged(&cluster).await
    }

    pub(crate) async fn engaged(&self, cluster: &str) -> Cluster {
        eventually(SOON, format!("{cluster} is engaged"), || {
            self.fleet.get(cluster).ok()
        })
        .await
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

/// A client of this namespace, whose server never answers.
pub(crate) fn silent(namespace: &str) -> Client {
    let silent = tower::service_fn(|_: Request<Body>| pending::<Result<Response<Body>, io::Error>>());
    Client::new(silent, namespace)
}

/// Pauses that are short, so that tests are.
pub(crate) fn pause_at_most(settings: &mut FleetSettings, pause: Duration) {
    settings.reconnect_cap = pause;
    Arc::make_mut(&mut settings.watch).retry_cap = pause;
}

/// Another engagement than this one.
pub(crate) async fn next(running: &Running, before: &Cluster) -> Cluster {
    let other = || {
        let now = running.fleet.get(before.name()).ok();
        now.filter(|now| !now.is_same(before))
    };
    eventually(SOON, "the cluster is engaged anew", other).await
}

/// An account that may read ConfigMaps.
pub(crate) async fn robot(plane: &ControlPlane) -> ServiceAccountUser {
    plane
        .service_account("default", "robot")
        .cluster_rules(may_read_config_maps())
        .create()
        .await
        .or_fail()
}

pub(crate) fn may_read_config_maps() -> Vec<PolicyRule> {
    vec![
        policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
        policy_rule([""], ["namespaces"], ["get"]),
    ]
}

/// The state of a cluster, once it is the one that is waited for.
async fn state(cluster: &Cluster, wanted: impl Fn(&ClusterState) -> bool) -> ClusterState {
    let state = tokio::time::timeout(SOON, cluster.wait_for(wanted)).await;
    state.unwrap_or_else(|_| cluster.state())
}

pub(crate) async fn ready(cluster: &Cluster) {
    let state = state(cluster, ClusterState::is_ready).await;
    assert!(state.is_ready(), "{} is not ready: {state}", cluster.name());
}

pub(crate) async fn gone(cluster: &Cluster) {
    let state = state(cluster, |state| *state == ClusterState::Gone).await;
    assert_eq!(state, ClusterState::Gone, "{}", cluster.name());
}

/// Waits until a cluster is unreachable for this reason.
pub(crate) async fn unreachable(cluster: &Cluster, because: &str) -> ClusterState {
    let found = |state: &ClusterState| match state {
        ClusterState::Unreachable { reason } => reason.contains(because),
        _ => false,
    };
    let state = state(cluster, found).await;
    assert!(found(&state), "{state}");
    state
}

/// Waits until the ConfigMaps of a cluster are listed.
pub(crate) async fn synced(cluster: &Cluster) {
    let store = cluster.store::<ConfigMap>().or_fail();
    store.wait_synced(SOON).await.or_fail();
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// Watches, and writes down what happens.
pub(crate) fn follow(cluster: &Cluster, request: WatchRequest) -> (WatchHandle, Arc<Log>) {
    let log = Arc::new(Log::default());
    let watch = cluster.watch(request, Some(log.clone())).or_fail();
    (watch, log)
}

pub(crate) fn watch_config_maps(cluster: &Cluster) -> (WatchHandle, Arc<Log>) {
    follow(cluster, WatchRequest::of::<ConfigMap>())
}
