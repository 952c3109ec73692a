//! The three kinds of change of a cluster's description.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRoleBinding};
use mcr_core::{
    ClusterSpec, Credential, CredentialError, CredentialSource, Endpoint, EndpointAccess, Fingerprint,
    Refresh, StoreError,
};
use mcr_testkit::control_plane::{ControlPlane, Credentials, Etcd, KubeconfigBuilder};

use crate::harness::*;

/// Also if anonymous users have all rights: nobody has shown that they are meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_credentials_is_ready_only_if_the_operator_allows_anonymous_users() {
    let plane = ControlPlane::start().await.or_fail();
    let bare = KubeconfigBuilder::new().context("a", plane.url(), plane.ca_pem(), Credentials::Anonymous);
    let running = Running::start();
    let cluster = running.join("a", &bare.to_yaml()).await;
    let _watch = watch_config_maps(&cluster);
    let is_refused = || {
        cluster
            .state()
            .reason()
            .is_some_and(|why| why.contains("system:anonymous"))
    };
    eventually(SOON, "it is refused", &is_refused).await;
    let binding = serde_json::json!({
        "metadata": {"name": "everybody"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).or_fail();
    let bindings = kube::Api::all(plane.client());
    bindings.create(&Default::default(), &binding).await.or_fail();
    running.asked_again("a", 3).await;
    assert!(is_refused(), "{}", cluster.state());
    let allowing = Running::start_with(|settings| settings.allow_anonymous = true);
    ready(&allowing.join("a", &bare.to_yaml()).await).await;
    allowing.stop().await;
    running.stop().await;
}

/// Another address of the same cluster: one list and a comparison, which finds what was deleted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_address_of_the_same_cluster_keeps_the_store_and_reports_missed_deletes() {
    let etcd = Etcd::start().await.or_fail();
    let one = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let two = ControlPlane::builder()
        .replica_of(&one)
        .audit(true)
        .start()
        .await
        .or_fail();
    let running = Running::start();
    create(&one, "stays").await;
    create(&one, "goes").await;
    let cluster = running.join("a", &one.kubeconfig()).await;
    let (_watch, log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    eventually(SOON, "it is known who the cluster is", || cluster.identity()).await;
    one.stop().await.or_fail();
    unreachable(&cluster, "").await;
    delete(&two, "goes").await;

    let mark = two.audit().await.or_fail().mark();
    running.clusters.add(spec("a", &two.kubeconfig()));
    eventually(SOON, "the missed delete is told", || log.has("-goes")).await;
    assert_eq!(
        log.count("+stays"),
        1,
        "what stayed is not told again: {:?}",
        log.lines()
    );
    assert!(!log.has("-stays"), "{:?}", log.lines());
    assert!(cluster.state().is_ready());
    assert_eq!(running.fleet.get("a").or_fail().epoch(), cluster.epoch());
    let lists = two
        .audit()
        .await
        .or_fail()
        .since(mark)
        .count(|e| e.is_list("configmaps") && e.user_agent.contains(" mcr/"));
    assert_eq!(lists, 1, "another address costs one list");
    running.stop().await;
}

/// Promise 4: same name, other identity: the old cache is never readable again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_under_the_same_name_gets_nothing_of_the_old_one() {
    let etcd = Etcd::start().await.or_fail();
    let old = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    let new = ControlPlane::builder().etcd(&etcd).start().await.or_fail();
    create(&old, "of-the-old").await;
    create(&new, "of-the-new").await;
    let running = Running::start();
    let before = running.join("a", &old.kubeconfig()).await;
    let (_watch, log) = watch_config_maps(&before);
    synced(&before).await;
    let store = before.store::<ConfigMap>().or_fail();
    eventually(SOON, "it is known who the old one is", || before.identity()).await;
    eventually(SOON, "the old object is seen", || log.has("+of-the-old")).await;

    running.clusters.add(spec("a", &new.kubeconfig()));
    let after = next(&running, &before).await;
    assert!(
        matches!(store.list(), Err(StoreError::Gone { .. })),
        "the old store is not readable"
    );
    assert!(matches!(
        before.store::<ConfigMap>(),
        Err(StoreError::Gone { .. })
    ));
    let refused = before
        .api::<ConfigMap>()
        .list(&Default::default())
        .await
        .expect_err("the old client answers Gone");
    let text = mcr_core::explain_error(&refused);
    assert_eq!(text, "the cluster is gone from the fleet");
    assert!(
        !log.has("-of-the-old"),
        "replacing a cluster deletes nothing: {:?}",
        log.lines()
    );

    let (_watch, log) = watch_config_maps(&after);
    ready(&after).await;
    synced(&after).await;
    eventually(SOON, "the new object is seen", || log.has("+of-the-new")).await;
    assert!(!log.has("+of-the-old"));
    let identity = eventually(SOON, "it is known who the new one is", || after.identity()).await;
    assert_ne!(before.identity(), Some(identity));
    running.stop().await;
}

/// Promise 7: a credential is refreshed before it expires, once on 401, and never in a loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_renewed_before_they_expire_and_once_when_refused() {
    let plane = ControlPlane::builder().audit(true).start().await.or_fail();
    let robot = robot(&plane).await;
    let issuer = Arc::new(Issuer::default());
    // Enough until they last.
    for _ in 0..8 {
        let token = robot.token().await.or_fail();
        issuer.tokens.lock().unwrap().push_back(token);
    }
    let endpoint = Endpoint::new(plane.url().parse().or_fail()).certificate_authority(plane.ca_pem());
    let running = Running::start_with(|settings| settings.reconnect_cap = Duration::from_secs(1));
    let access = EndpointAccess::new(endpoint, issuer.clone()).into();
    let cluster = running.announce(ClusterSpec::new(name("a"), access)).await;
    let (_watch, log) = watch_config_maps(&cluster);
    synced(&cluster).await;
    // Said to live for five seconds, and taken for longer: the next one is fetched because of what is said.
    eventually(Duration::from_secs(30), "renewed before it expires", || {
        issuer.asked().len() > 1
    })
    .await;
    issuer.hand_out_lasting_ones();
    let asked = issuer.asked();
    assert!(
        asked[0] == Refresh::First && asked[1..].iter().all(|why| *why == Refresh::Expiring),
        "{asked:?}"
    );
    eventually(
        SOON,
        "the last short-lived one is replaced by one that lasts",
        || running.fleet.snapshot().clusters[0].credential_expires.is_none(),
    )
    .await;
    let asked_before = issuer.asked().len();

    // The account goes, and with it all its tokens; the issuer has nothing better to offer.
    robot.delete().await.or_fail();
    plane.stop().await.or_fail();
    plane.restart().await.or_fail();
    let refused =
        "the API server refuses the credentials (401 Unauthorized); they may have expired or been revoked";
    eventually(SOON, "refused, and said so", || {
        cluster.state().reason() == Some(refused)
    })
    .await;
    eventually(
        SOON,
        "a credential other than the refused one is asked for",
        || issuer.asked()[asked_before..].contains(&Refresh::Unauthorized),
    )
    .await;
    // Four more take three pauses, one of which may be left out: of at least a quarter of a second and of half of one.
    let (asked, since) = (issuer.asked().len(), Instant::now());
    eventually(SOON, "asked again and again", || {
        issuer.asked().len() >= asked + 4
    })
    .await;
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(700), "asked four times in {took:?}");
    assert!(
        !log.lines().iter().any(|line| line.starts_with('-')),
        "{:?}",
        log.lines()
    );
    running.stop().await;
}

/// Hands out prepared tokens one after the other, and the last one again and again.
#[derive(Default)]
struct Issuer {
    tokens: Mutex<VecDeque<String>>,
    asked: Mutex<Vec<Refresh>>,
    lasting: Mutex<bool>,
}

impl Issuer {
    fn asked(&self) -> Vec<Refresh> {
        self.asked.lock().unwrap().clone()
    }

    /// From now on its tokens don't expire.
    fn hand_out_lasting_ones(&self) {
        *self.lasting.lock().unwrap() = true;
    }
}

impl CredentialSource for Issuer {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&"the issuer")
    }

    fn credential(
        &self,
        why: Refresh,
    ) -> futures::future::BoxFuture<'_, Result<Credential, CredentialError>> {
        self.asked.lock().unwrap().push(why);
        let mut tokens = self.tokens.lock().unwrap();
        let token = if tokens.len() > 1 {
            tokens.pop_front()
        } else {
            tokens.front().cloned()
        };
        let credential = Credential::token(token.unwrap());
        let credential = if *self.lasting.lock().unwrap() {
            credential
        } else {
            credential.expires_at(SystemTime::now() + Duration::from_secs(5))
        };
        Box::pin(std::future::ready(Ok(credential)))
    }
}
