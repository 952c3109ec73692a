//! What a rotation costs.

use std::time::{Duration, Instant};

use mcr_testkit::{control_plane::Etcd, waiting::OrFail};

use crate::harness::{Hub, PATIENCE, Running, create, is_fed, lists, planes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_kubeconfig_costs_no_list_and_the_old_credentials_are_released() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member] = planes(&etcd).await;
    let hub = Hub::new(hub, "rotation").await;
    let user = async |name: &str| {
        member
            .user(name)
            .groups(["system:masters"])
            .create()
            .await
            .or_fail()
    };
    let (old, new) = (user("old").await, user("new").await);
    create(&member, "elephant", "animal").await;
    hub.put("member", old.kubeconfig()).await;
    let running = Running::start(hub.provider().await.build().or_fail());
    is_fed(&member, "elephant").await;
    let before = running.ready("member").await;
    let mark = member.audit().await.or_fail().mark();

    hub.put("member", new.kubeconfig()).await;
    // Another animal again and again, so that requests are made all the time.
    let (mut fed, begun) = (0, Instant::now());
    loop {
        fed += 1;
        let animal = format!("animal-{fed}");
        create(&member, &animal, "animal").await;
        is_fed(&member, &animal).await;
        let asked = member.audit_since(mark).await.or_fail();
        let ended = asked
            .count(|event| event.user == "old" && event.verb == "watch" && event.stage == "ResponseComplete");
        let begins = asked.count(|event| event.user == "new" && event.is_watch_start("configmaps"));
        if ended >= 1 && begins >= 1 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the old watch goes on");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mark_after = member.audit().await.or_fail().mark();
    for animal in ["last", "very-last"] {
        create(&member, animal, "animal").await;
        is_fed(&member, animal).await;
    }
    let asked = member.audit_since(mark).await.or_fail();
    assert_eq!(lists(&asked), 0, "a rotation costs no LIST");
    let after = member.audit_since(mark_after).await.or_fail();
    assert_eq!(
        after.count(|event| event.user == "old"),
        0,
        "nothing is asked with the old credentials"
    );
    assert!(running.fleet.get("member").or_fail().is_same(&before));

    // A rotation that is none: the credentials are not taken. The last good ones go on.
    let stranger = new
        .kubeconfig()
        .replace("client-certificate-data:", "client-certificate-data-that-was:");
    let stranger = stranger.replace(
        "client-key-data:",
        "token: nobody-knows\n    client-key-data-that-was:",
    );
    hub.put("member", stranger).await;
    running.shows("member", "Ready", "credentials").await;
    create(&member, "late", "animal").await;
    is_fed(&member, "late").await;
    running.stop().await;
}
