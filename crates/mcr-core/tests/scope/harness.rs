//! A fleet, a layout of namespaces as clusters, and what the tests of this folder share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    api::{DeleteParams, ObjectMeta, PostParams},
    client::Body,
};
use mcr_core::{
    AnswerBody, BoxError, ChangeSink, Cluster, ClusterName, ClusterSpec, ClusterState, Fleet, FleetSettings,
    ObjectChange, ObjectMetadata, Placement, Scope, ScopeLayout, ScopeRefusal, Upstream, WatchHandle,
    WatchRequest,
};
use mcr_provider_clusters::{ClustersHandle, ClustersProvider};
use mcr_testkit::waiting::Background;
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};

use crate::shard::Shard;

/// How long anything is waited for, in real and in paused time.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Each namespace is a cluster and keeps its name inside. Nothing is rewritten, so this shows what scopes do by
/// themselves.
pub(crate) struct Namespaces;

impl ScopeLayout for Namespaces {
    fn name(&self) -> &str {
        "namespaces"
    }

    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        if wanted.plural() == "nodes" {
            return Err(ScopeRefusal::new("a namespace has no nodes"));
        }
        Ok(wanted.clone().all_namespaces())
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        object.namespace().map(Placement::new)
    }

    fn send(
        &self,
        _: Arc<str>,
        request: Request<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async move { upstream.send(request).await })
    }
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

    /// Pauses are short, so that tests are.
    pub(crate) fn start_with(change: impl FnOnce(&mut FleetSettings)) -> Self {
        let provider = ClustersProvider::new();
        let clusters = provider.handle();
        let fleet = Fleet::builder()
            .provider(provider)
            .settings(|settings| {
                Arc::make_mut(&mut settings.watch).retry_cap = Duration::from_millis(200);
                settings.reconnect_cap = Duration::from_millis(200);
                change(settings);
            })
            .build();
        let runs = fleet.clone();
        Self {
            fleet,
            clusters,
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    /// Announces a place as a cluster of the same name and waits until it is engaged.
    pub(crate) async fn join(&self, scope: &Scope, endpoint: &str, place: &str) -> Cluster {
        self.clusters.add(spec(scope, endpoint, place));
        self.engaged(place).await
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

pub(crate) fn spec(scope: &Scope, endpoint: &str, place: &str) -> ClusterSpec {
    let name = ClusterName::new(place).or_fail();
    ClusterSpec::new(name, scope.place(endpoint, place)).identity(format!("id of {place}"))
}

/// Runs a test on a clock that goes on by itself while everyone waits, so that minutes cost nothing, and looks whether
/// anything is left running in the end.
pub(crate) fn paused<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    measure_from_here();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    runtime.block_on(async {
        let before = alive();
        test().await;
        // What waits for the end of a pause that nobody needs any more.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(alive(), before, "tasks are left over");
    });
}

/// The core measures from when it first connected; that must not be in the future of another test's clock.
fn measure_from_here() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let first = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let running = Running::start();
                let shard = Shard::new("first", 1);
                running.clusters.add(ClusterSpec::new(
                    ClusterName::new("first").or_fail(),
                    shard.alone("first"),
                ));
                running.engaged("first").await;
                running.stop().await;
            });
        };
        std::thread::spawn(first).join().unwrap();
    });
}

pub(crate) async fn ready(cluster: &Cluster) {
    let state = tokio::time::timeout(SOON, cluster.wait_for(ClusterState::is_ready)).await;
    assert!(
        matches!(state, Ok(ClusterState::Ready)),
        "{} is not ready: {}",
        cluster.name(),
        cluster.state()
    );
}

/// Writes down what it is told: `+name` for new, `~name` for changed, `-name` for deleted objects.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl ChangeSink for Log {
    fn changed(&self, change: &ObjectChange) {
        let key = change.key().expect("a change is of an object");
        if key.name.starts_with("kube-") {
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

    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort();
        lines
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.lines().iter().any(|known| known == line)
    }
}

/// Watches ConfigMaps and writes down what happens.
pub(crate) fn follow(cluster: &Cluster) -> (WatchHandle, Arc<Log>) {
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

/// The names of the ConfigMaps that a cluster's store holds.
pub(crate) fn held(cluster: &Cluster) -> Vec<String> {
    let store = cluster.store::<ConfigMap>().or_fail();
    let mut names: Vec<String> = store
        .keys()
        .or_fail()
        .iter()
        .map(|key| key.name.to_string())
        .filter(|name| !name.starts_with("kube-"))
        .collect();
    names.sort();
    names
}

pub(crate) fn config_map(name: &str, labels: &[(&str, &str)]) -> ConfigMap {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

pub(crate) async fn create(client: &kube::Client, namespace: &str, name: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &config_map(name, &[]))
        .await
        .or_fail();
}

pub(crate) async fn delete(client: &kube::Client, namespace: &str, name: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
    api.delete(name, &DeleteParams::default()).await.or_fail();
}
