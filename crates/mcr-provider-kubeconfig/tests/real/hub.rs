//! A hub that is away, or forbids.

use std::time::Duration;

use mcr::Cluster;
use mcr_core::WatchSettings;
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    control_plane::{AuditMark, ControlPlane, Etcd},
    waiting::{OrFail, eventually},
};

use crate::harness::{Hub, PATIENCE, Running, create, documented_rules, is_fed, lists, logged, planes};

fn warnings(namespace: &str) -> Vec<String> {
    let lines = logged("can't be watched in the hub at the moment").into_iter();
    lines
        .filter(|line| line.contains(&format!("in namespace {namespace} ")) && line.contains("WARN"))
        .collect()
}

/// A provider whose hub is asked again after a second at most, and that knows after so long that it is forbidden for good.
async fn provider(hub: &Hub, blocked_for: Duration) -> KubeconfigProvider {
    let mut watch = WatchSettings::default();
    watch.retry_cap = Duration::from_secs(1);
    let builder = hub.provider().await;
    builder.times(watch, blocked_for).build().or_fail()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_restarts_changes_nothing_and_is_reported_once() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member, other] = planes(&etcd).await;
    let hub = Hub::new(hub, "outage").await;
    create(&member, "elephant", "animal").await;
    hub.put("member", member.kubeconfig()).await;
    hub.put("gone", other.kubeconfig()).await;
    // An API server that has just started forbids everything for a moment.
    let running = Running::start(provider(&hub, PATIENCE).await);
    is_fed(&member, "elephant").await;
    running.ready("gone").await;
    let before = running.ready("member").await;
    let mark = member.audit().await.or_fail().mark();
    assert_eq!(warnings("outage"), [""; 0]);

    hub.plane.stop().await.or_fail();
    eventually(PATIENCE, "the log says so", || warnings("outage").len() == 1).await;
    create(&member, "lion", "animal").await;
    is_fed(&member, "lion").await;
    tried_again("outage", 2).await;
    assert_eq!(running.names(), ["gone", "member"]);
    hub.plane.restart().await.or_fail();
    hub.put("late", other.kubeconfig()).await;
    eventually(PATIENCE, "what came meanwhile joins", || {
        running.fleet.get("late").ok()
    })
    .await;
    eventually(PATIENCE, "its end is told", || {
        logged("the hub answers again")
            .iter()
            .any(|line| line.contains("in namespace outage "))
    })
    .await;
    assert_eq!(
        warnings("outage").len(),
        1,
        "once, however often it was tried: {:?}",
        warnings("outage")
    );
    assert_eq!(running.names(), ["gone", "late", "member"]);
    is_unnoticed(&running, &before, &member, mark).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_forbids_changes_nothing_and_is_reported_once() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member, other] = planes(&etcd).await;
    let hub = Hub::new(hub, "forbids").await;
    create(&member, "elephant", "animal").await;
    hub.put("member", member.kubeconfig()).await;
    hub.put("gone", other.kubeconfig()).await;
    let running = Running::start(provider(&hub, Duration::from_secs(3)).await);
    is_fed(&member, "elephant").await;
    running.ready("gone").await;
    let before = running.ready("member").await;
    let mark = member.audit().await.or_fail().mark();

    // A watch that is open goes on, so it is ended.
    hub.robot.revoke().await.or_fail();
    hub.plane.restart().await.or_fail();
    let forbidden = || {
        warnings("forbids")
            .iter()
            .filter(|line| line.contains("forbidden"))
            .count()
    };
    eventually(PATIENCE, "the log says what to do", || forbidden() == 1).await;
    hub.delete("gone").await;
    create(&member, "zebra", "animal").await;
    is_fed(&member, "zebra").await;
    tried_again("forbids", 2).await;
    assert_eq!(
        running.names(),
        ["gone", "member"],
        "what is not seen is not believed to be gone"
    );
    hub.robot.allow_in("forbids", documented_rules()).await.or_fail();
    eventually(PATIENCE, "what left meanwhile leaves", || {
        running.names() == ["member"]
    })
    .await;
    assert_eq!(forbidden(), 1, "{:?}", warnings("forbids"));
    is_unnoticed(&running, &before, &member, mark).await;
    running.stop().await;
}

/// The members don't notice what becomes of the hub.
async fn is_unnoticed(running: &Running, before: &Cluster, member: &ControlPlane, mark: AuditMark) {
    assert!(running.fleet.get("member").or_fail().is_same(before));
    let asked = member.audit_since(mark).await.or_fail();
    assert_eq!(lists(&asked), 0, "the members don't notice");
}

/// Waits until it was tried in vain to list or watch the Secrets of a namespace, so many times more than until now.
async fn tried_again(namespace: &str, times: usize) {
    let in_namespace = format!("in namespace {namespace} ");
    let tried = || {
        let lines = logged("watch failed").into_iter();
        lines.filter(|line| line.contains(&in_namespace)).count()
    };
    let before = tried();
    eventually(PATIENCE, "it is tried again", || tried() >= before + times).await;
}

/// Synced is only said of what was listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_was_never_listed_has_not_announced_everything() {
    let etcd = Etcd::start().await.or_fail();
    let [hub] = planes(&etcd).await;
    let hub = Hub::new(hub, "never").await;
    hub.put("member", hub.plane.kubeconfig()).await;
    hub.robot.revoke().await.or_fail();
    let running = Running::start(provider(&hub, PATIENCE).await);
    eventually(PATIENCE, "the log says what to do", || {
        warnings("never")
            .iter()
            .any(|line| line.contains("Grant list and watch"))
    })
    .await;
    tried_again("never", 2).await;
    assert!(!running.fleet.is_discovered());
    hub.robot.allow_in("never", documented_rules()).await.or_fail();
    eventually(PATIENCE, "it is listed", || running.fleet.is_discovered()).await;
    running.names_are(&["member"]).await;
    assert_eq!(warnings("never").len(), 1);
    running.stop().await;
}
