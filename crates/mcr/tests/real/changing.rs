//! Kubeconfig files that change under a running controller.

use std::{sync::Arc, time::Duration};

use mcr_testkit::control_plane::{AuditLog, ControlPlane, Credentials, Etcd};

use crate::harness::*;

/// A file is rewritten with a new context, then with a new token, then with another server for a context. The test checks
/// the effect of each change, and that a new token costs no LIST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewritten_kubeconfig_does_what_its_difference_asks_for() {
    let etcd = Etcd::start().await.or_fail();
    let one = ControlPlane::builder()
        .etcd(&etcd)
        .audit(true)
        .start()
        .await
        .or_fail();
    let two = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let three = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    create(&one, "in-one").await;
    create(&two, "in-two").await;
    create(&three, "in-three").await;
    let robot = one
        .service_account("default", "robot")
        .cluster_rules(may_read_config_maps())
        .create()
        .await
        .or_fail();
    let by_token = |token: String| ("a", one.url(), one.ca_pem(), Credentials::Token(token));
    let lists = |audit: &AuditLog| audit.count(|e| e.is_list("configmaps") && e.user.contains("robot"));

    let seen = Arc::new(Seen::default());
    let first = robot.token().await.or_fail();
    let running = Running::start(
        &[("f.kubeconfig", &kubeconfig([by_token(first.clone())]))],
        vec![noting(&seen)],
    );
    eventually(PATIENCE, "the first context is reconciled", || {
        seen.has("live a in-one")
    })
    .await;
    let a = running.fleet.get("a").or_fail();
    assert_eq!(lists(&one.audit().await.or_fail()), 1);

    running.write("f.kubeconfig", &kubeconfig([by_token(first), admin("b", &two)]));
    eventually(PATIENCE, "a new context joins", || seen.has("live b in-two")).await;
    assert_eq!(seen.count("live a in-one"), 1, "the other one is left alone");

    let mark = one.audit().await.or_fail().mark();
    let second = robot.token().await.or_fail();
    running.write(
        "f.kubeconfig",
        &kubeconfig([by_token(second.clone()), admin("b", &two)]),
    );
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while one
        .audit_since(mark)
        .await
        .or_fail()
        .count(|e| e.is_watch_start("configmaps") && e.user.contains("robot"))
        == 0
    {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the watch goes on with the new token"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    delete(&one, "in-one").await;
    eventually(PATIENCE, "a delete after the rotation is seen once", || {
        seen.has("deleted a in-one")
    })
    .await;
    assert_eq!(
        lists(&one.audit_since(mark).await.or_fail()),
        0,
        "a new token costs no LIST"
    );
    assert_eq!(seen.count("deleted a in-one"), 1);
    let same = running.fleet.get(a.name()).or_fail();
    assert!(same.is_same(&a), "still the same engagement");

    running.write(
        "f.kubeconfig",
        &kubeconfig([by_token(second), admin("b", &three)]),
    );
    eventually(
        PATIENCE,
        "another server for a context is another cluster",
        || seen.has("live b in-three"),
    )
    .await;
    assert!(
        !seen.any(|line| line.starts_with("deleted b")),
        "replacing a cluster deletes nothing: {:?}",
        seen.lines()
    );
    assert!(running.fleet.get(a.name()).or_fail().is_same(&a));

    std::fs::remove_file(running.path("f.kubeconfig")).or_fail();
    eventually(PATIENCE, "a deleted file takes its clusters along", || {
        running.fleet.clusters().is_empty()
    })
    .await;
    assert!(
        !seen.any(|line| line.starts_with("deleted b")),
        "leaving is not deleting: {:?}",
        seen.lines()
    );
    running.stop().await;
}

/// Many changes of few objects, and many reconciles at once: never two of the same object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_never_runs_twice_at_once_and_its_deletion_comes_last() {
    let plane = ControlPlane::start().await.or_fail();
    let seen = Arc::new(Seen::default());
    let running = Running::start(
        &[(
            "f.kubeconfig",
            &kubeconfig([admin("a", &plane), admin("b", &plane)]),
        )],
        vec![noting(&seen)],
    );
    for name in ["x", "y"] {
        create(&plane, name).await;
    }
    for i in 0..60 {
        touch(&plane, ["x", "y"][i % 2], &i.to_string()).await;
    }
    for name in ["x", "y"] {
        delete(&plane, name).await;
    }
    let all = ["deleted a x", "deleted a y", "deleted b x", "deleted b y"];
    eventually(PATIENCE, "all deletions arrive", || {
        all.iter().all(|line| seen.has(line))
    })
    .await;
    assert_eq!(seen.most_at_once(), 1);
    for line in all {
        assert_eq!(seen.count(line), 1, "{:?}", seen.lines());
        let object = line.trim_start_matches("deleted ");
        let last = seen.lines().into_iter().rfind(|line| line.ends_with(object));
        assert_eq!(last.as_deref(), Some(line));
    }
    running.stop().await;
}
