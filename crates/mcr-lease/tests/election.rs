//! One candidate over a simulated API server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use mcr_lease::{Candidate, Role};
use mcr_testkit::{
    sim::SimCluster,
    waiting::{Background, OrFail, eventually},
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn candidate() -> Candidate {
    Candidate::new("lock")
        .namespace("default")
        .identity("me")
        .lease_duration(Duration::from_secs(2))
        .renew_deadline(Duration::from_millis(1900))
        .retry_period(Duration::from_millis(20))
}

fn lease(cluster: &SimCluster) -> Option<Value> {
    cluster.get("leases.coordination.k8s.io", "default/lock")
}

#[tokio::test]
async fn a_new_lease_is_claimed_then_held_then_released() {
    let cluster = SimCluster::new();
    let election = candidate().build().unwrap();
    let leadership = election.leadership();
    let client = cluster.client();
    let running = Background::start(|stop| election.run(client, stop));
    let claimed = eventually(PATIENCE, "the Lease is created", || lease(&cluster)).await;
    assert!(
        claimed["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .starts_with("me_")
    );
    assert!(!leadership.is_held(), "a claim is not a term yet");

    let term = leadership.acquired().await;
    let mut labelled = lease(&cluster).unwrap();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["metadata"]["resourceVersion"] = Value::Null;
    cluster.update(labelled).or_fail();
    let renewed = || {
        let lease = lease(&cluster)?;
        let kept = lease["metadata"]["labels"]["a"] == "b";
        (kept && lease["spec"]["renewTime"] != claimed["spec"]["renewTime"]).then_some(())
    };
    eventually(PATIENCE, "the Lease is renewed with the label", renewed).await;
    assert!(term.is_held(), "a write of somebody else does not end the term");
    assert_eq!(leadership.status().role, Role::Leader);
    assert_eq!(&*leadership.status().lease, "default/lock");

    running.stop().await;
    let released = lease(&cluster).unwrap();
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
    assert!(!term.is_held() && !term.may_finish());
}

#[tokio::test]
async fn a_guard_stays_invalid_when_the_same_process_leads_again() {
    let cluster = SimCluster::new();
    let holder = |holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "lock", "namespace": "default"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"},
        })
    };
    cluster.create(holder("")).or_fail();
    let election = candidate().build().unwrap();
    let leadership = election.leadership();
    let client = cluster.client();
    let running = Background::start(|stop| election.run(client, stop));
    let first = leadership.acquired().await;
    cluster.update(holder("rival")).or_fail();
    first.lost().await;
    first.must_stop().await;
    let second = leadership.acquired().await;
    assert!(second.is_held() && !first.is_held() && !first.may_finish());
    drop(running);
}
