//! What the tests of this folder share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use mcr_core::{
    Access, ChangeSink, Cluster, ClusterName, ClusterSpec, ClusterState, Fleet, FleetSettings, ObjectChange,
    Trust, WatchHandle, WatchRequest,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_testkit::control_plane::{ControlPlane, ServiceAccountUser, policy_rule};
use mcr_testkit::waiting::Background;
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};

/// How long anything is waited for: on a busy machine an API server takes half a minute and more to start.
pub(crate) const SOON: Duration = Duration::from_secs(120);

pub(crate) fn name(name: &str) -> ClusterName {
    ClusterName::new(name).or_fail()
}

pub(crate) fn spec(cluster: &str, kubeconfig: &str) -> ClusterSpec {
    ClusterSpec::new(name(cluster), Access::kubeconfig(kubeconfig, Trust::Trusted))
}

/// Lets no request end because it takes long. On a busy machine one that is cut short is made again, and a test that counts
/// requests, or waits beside a silent server, would see that.
pub(crate) fn cut_no_request_short(settings: &mut FleetSettings) {
    const HOUR: Duration = Duration::from_secs(3600);
    let transport = Arc::make_mut(&mut settings.transport);
    transport.connect_timeout = HOUR;
    transport.head_timeout = HOUR;
}

/// A running fleet whose clusters the test announces by hand.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) clusters: ClustersHandle,
    running: Background<()>,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Pauses are short, so that tests are; everything else is as by default.
    pub(crate) fn start_with(change: impl FnOnce(&mut FleetSettings)) -> Self {
        Self::start_as_by_default(|settings| {
            settings.reconnect_cap = Duration::from_millis(300);
            Arc::make_mut(&mut settings.watch).retry_cap = Duration::from_millis(300);
            Arc::make_mut(&mut settings.transport).rotation_spread = Duration::from_millis(300);
            change(settings);
        })
    }

    pub(crate) fn start_as_by_default(change: impl FnOnce(&mut FleetSettings)) -> Self {
        let provider = ClustersProvider::new();
        let clusters = provider.handle();
        // Most tests of this folder have one API server under several names.
        let change = |settings: &mut FleetSettings| {
            settings.allow_duplicates = true;
            change(settings);
        };
        let fleet = Fleet::builder().provider(provider).settings(change).build();
        let runs = fleet.clone();
        Self {
            fleet,
            clusters,
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    /// Announces a cluster and waits until it is engaged.
    pub(crate) async fn join(&self, cluster: &str, kubeconfig: &str) -> Cluster {
        self.clusters.add(spec(cluster, kubeconfig));
        self.engaged(cluster).await
    }

    pub(crate) async fn engaged(&self, cluster: &str) -> Cluster {
        eventually(SOON, format!("{cluster} is engaged"), || {
            self.fleet.get(cluster).ok()
        })
        .await
    }

    /// Waits until a cluster has been asked so many times more whether it answers, or tried to be connected.
    pub(crate) async fn asked_again(&self, cluster: &str, times: usize) {
        let last = || {
            let clusters = self.fleet.snapshot().clusters;
            let status = clusters.into_iter().find(|status| status.name == *cluster);
            status.and_then(|status| status.last_probe)
        };
        for _ in 0..times {
            let before = last();
            eventually(SOON, format!("{cluster} is asked"), || last() != before).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

pub(crate) async fn ready(cluster: &Cluster) {
    let state = tokio::time::timeout(SOON, cluster.wait_for(ClusterState::is_ready)).await;
    assert!(
        matches!(state, Ok(ClusterState::Ready)),
        "{} is not ready within {SOON:?}: {}",
        cluster.name(),
        cluster.state()
    );
}

/// Writes down what it is told: `+name` for new, `~name` for changed, `-name` for deleted objects of the
/// `default` namespace.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl ChangeSink for Log {
    fn changed(&self, change: &ObjectChange) {
        let key = change.key().expect("a change is of an object");
        if key.namespace.as_deref() != Some("default") || key.name.starts_with("kube-") {
            return;
        }
        let sign = match (&change.old, &change.new) {
            (None, _) => '+',
            (Some(_), Some(_)) => '~',
            (Some(_), None) => '-',
        };
        self.0.lock().unwrap().push(format!("{sign}{}", key.name));
    }
}

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.count(line) > 0
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|known| *known == line)
            .count()
    }
}

/// Watches ConfigMaps and writes down what happens.
pub(crate) fn watch_config_maps(cluster: &Cluster) -> (WatchHandle, Arc<Log>) {
    let log = Arc::new(Log::default());
    let handle = cluster
        .watch(WatchRequest::of::<ConfigMap>(), Some(log.clone()))
        .or_fail();
    (handle, log)
}

pub(crate) async fn synced(cluster: &Cluster) {
    cluster
        .store::<ConfigMap>()
        .or_fail()
        .wait_synced(SOON)
        .await
        .or_fail();
}

pub(crate) async fn create(plane: &ControlPlane, object: &str) {
    create_with(plane, object, &[]).await;
}

pub(crate) async fn create_with(plane: &ControlPlane, object: &str, labels: &[(&str, &str)]) {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(object.into()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let api = kube::Api::<ConfigMap>::namespaced(plane.client(), "default");
    api.create(&PostParams::default(), &map).await.or_fail();
}

pub(crate) async fn delete(plane: &ControlPlane, object: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(plane.client(), "default");
    api.delete(object, &DeleteParams::default()).await.or_fail();
}

pub(crate) fn may_read_config_maps() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    vec![
        policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
        policy_rule([""], ["namespaces"], ["get"]),
    ]
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
