//! Workload clusters: what is made in them, and what their audit logs tell.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use mcr_testkit::control_plane::{AuditEvent, ControlPlane};
use mcr_testkit::waiting::OrFail;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::PATIENCE;
use crate::running::key;

/// An API server that the clusters of all tests may lead to.
pub(crate) async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async || {
        ControlPlane::builder()
            .name("workload")
            .audit(true)
            .start()
            .await
            .or_fail()
    };
    SHARED.get_or_init(start).await
}

fn maps(plane: &ControlPlane) -> Api<ConfigMap> {
    Api::namespaced(plane.client(), "default")
}

/// Makes a ConfigMap for the controller of one test.
pub(crate) async fn ask(plane: &ControlPlane, tag: &str, name: &str) {
    let map = json!({"metadata": {"name": format!("{tag}-{name}"), "labels": {"capi": tag}}});
    let map = serde_json::from_value(map).or_fail();
    maps(plane).create(&PostParams::default(), &map).await.or_fail();
}

/// Waits until a cluster's reconcile has answered in the ConfigMap.
pub(crate) async fn answered(plane: &ControlPlane, tag: &str, name: &str, cluster: &str) {
    let started = Instant::now();
    loop {
        let map = maps(plane).get(&format!("{tag}-{name}")).await.or_fail();
        if map.data.unwrap_or_default().contains_key(&key(cluster)) {
            return;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{cluster} has not answered {tag}-{name} within {PATIENCE:?}"
        );
        sleep(Duration::from_millis(30)).await;
    }
}

/// Asks, and waits for the answer.
pub(crate) async fn works(plane: &ControlPlane, tag: &str, name: &str, cluster: &str) {
    ask(plane, tag, name).await;
    answered(plane, tag, name, cluster).await;
}

/// Asks again and again until it is stopped, and waits for each answer: a missed event is a failure.
pub(crate) struct Load {
    stop: CancellationToken,
    task: JoinHandle<usize>,
}

impl Load {
    pub(crate) fn start(plane: &ControlPlane, tag: &str, cluster: &str) -> Self {
        let stop = CancellationToken::new();
        let (plane, tag, cluster, stopped) =
            (plane.clone(), tag.to_owned(), cluster.to_owned(), stop.clone());
        let task = tokio::spawn(async move {
            let mut count = 0;
            while !stopped.is_cancelled() {
                works(&plane, &tag, &format!("load-{count}"), &cluster).await;
                count += 1;
                sleep(Duration::from_millis(100)).await;
            }
            count
        });
        Self { stop, task }
    }

    /// How many were answered.
    pub(crate) async fn stop(self) -> usize {
        self.stop.cancel();
        match self.task.await {
            Ok(count) => count,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Whether this is about a request of the tests' controllers, and not one of Cluster API or of the tests themselves.
pub(crate) fn from_us(event: &AuditEvent) -> bool {
    event.user_agent.contains(" mcr/")
}

/// Waits until the tests' controllers ask with a credential that is as wanted, and returns it.
pub(crate) async fn credential(
    plane: &ControlPlane,
    what: &str,
    wanted: impl Fn(&AuditEvent) -> bool,
) -> String {
    let started = Instant::now();
    loop {
        let log = plane.audit().await.or_fail();
        let found = log.events().find(|event| {
            from_us(event) && event.is_start() && !event.credential.is_empty() && wanted(event)
        });
        if let Some(event) = found {
            return event.credential.clone();
        }
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}
