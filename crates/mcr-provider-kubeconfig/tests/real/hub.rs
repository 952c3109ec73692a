//! A hub that is away, or forbids.

use std::time::Duration;

use mcr_testkit::{
    control_plane::Etcd,
    waiting::{OrFail, eventually},
};

use crate::harness::{Hub, Running, SOON, create, documented_rules, is_fed, lists, logged, planes};

/// The pauses between attempts grow to 15 s.
const RECOVERY: Duration = Duration::from_secs(45);

fn warnings(namespace: &str) -> Vec<String> {
    let lines = logged("can't be watched in the hub at the moment").into_iter();
    lines
        .filter(|line| line.contains(&format!("in namespace {namespace} ")) && line.contains("WARN"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_restarts_or_forbids_changes_nothing_and_is_told_once() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member, other] = planes(&etcd).await;
    let hub = Hub::new(hub, "outage").await;
    create(&member, "elephant", "animal").await;
    hub.put("member", member.kubeconfig()).await;
    hub.put("gone", other.kubeconfig()).await;
    let running = Running::start(hub.provider().await.build().or_fail());
    is_fed(&member, "elephant").await;
    running.ready("gone").await;
    let before = running.ready("member").await;
    let mark = member.audit().await.or_fail().mark();
    assert_eq!(warnings("outage"), [""; 0]);

    // Away for a while.
    hub.plane.stop().await.or_fail();
    eventually(SOON, "the log says so", || {
        (warnings("outage").len() == 1).then_some(())
    })
    .await;
    create(&member, "lion", "animal").await;
    is_fed(&member, "lion").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(running.names(), ["gone", "member"]);
    hub.plane.restart().await.or_fail();
    hub.put("late", other.kubeconfig()).await;
    eventually(RECOVERY, "what came meanwhile joins", || {
        running.fleet.get("late").ok()
    })
    .await;
    assert_eq!(
        warnings("outage").len(),
        1,
        "once, however often it was tried: {:?}",
        warnings("outage")
    );
    eventually(SOON, "its end is told", || {
        logged("the hub answers again")
            .iter()
            .any(|line| line.contains("in namespace outage "))
            .then_some(())
    })
    .await;

    // There, but it forbids. A watch that is open goes on, so it is ended.
    hub.robot.revoke().await.or_fail();
    hub.plane.restart().await.or_fail();
    let forbidden = || {
        warnings("outage")
            .iter()
            .filter(|line| line.contains("forbidden"))
            .count()
    };
    eventually(RECOVERY, "the log says what to do", || {
        (forbidden() == 1).then_some(())
    })
    .await;
    hub.delete("gone").await;
    create(&member, "zebra", "animal").await;
    is_fed(&member, "zebra").await;
    assert_eq!(
        running.names(),
        ["gone", "late", "member"],
        "what is not seen is not believed to be gone"
    );
    hub.robot.allow_in("outage", documented_rules()).await.or_fail();
    eventually(RECOVERY, "what left meanwhile leaves", || {
        (running.names() == ["late", "member"]).then_some(())
    })
    .await;
    assert_eq!(forbidden(), 1, "{:?}", warnings("outage"));

    assert!(running.fleet.get("member").or_fail().is_same(&before));
    let asked = member.audit_since(mark).await.or_fail();
    assert_eq!(lists(&asked), 0, "the members don't notice");
    running.stop().await;
}

/// Synced is only said of what was listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_was_never_listed_has_not_said_everything() {
    let etcd = Etcd::start().await.or_fail();
    let [hub] = planes(&etcd).await;
    let hub = Hub::new(hub, "never").await;
    hub.put("member", hub.plane.kubeconfig()).await;
    hub.robot.revoke().await.or_fail();
    let running = Running::start(hub.provider().await.build().or_fail());
    eventually(SOON, "the log says what to do", || {
        warnings("never")
            .iter()
            .any(|line| line.contains("Grant list and watch"))
            .then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!running.fleet.is_discovered());
    hub.robot.allow_in("never", documented_rules()).await.or_fail();
    eventually(RECOVERY, "it is listed", || {
        running.fleet.is_discovered().then_some(())
    })
    .await;
    running.names_are(&["member"]).await;
    assert_eq!(warnings("never").len(), 1);
    running.stop().await;
}
