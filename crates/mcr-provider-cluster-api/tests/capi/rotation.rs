//! Credentials and addresses that change below a running controller.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mcr_testkit::control_plane::{AuditLog, ControlPlane};
use mcr_testkit::waiting::OrFail;
use serde_json::Value;

use crate::byo;
use crate::kubeadm::Kubeadm;
use crate::objects::{SECRET, base64, uid};
use crate::on_capi;
use crate::running::Running;
use crate::workload::{self, Load, credential, from_us, works};

/// The requests for ConfigMaps of one test's controller that read a list.
fn lists(log: &AuditLog, tag: &str) -> usize {
    let selector = format!("capi%3D{tag}");
    log.count(|event| {
        event.is_list("configmaps")
            && (event.uri.contains(&selector) || event.uri.contains(&format!("capi={tag}")))
    })
}

/// The requests of the tests' controllers with the credentials of a user that were refused.
fn refused(log: &AuditLog, user: &str) -> Vec<String> {
    let refused = log
        .events()
        .filter(|event| event.user == user && from_us(event) && event.code >= 400);
    refused
        .map(|event| format!("{} {} {}", event.code, event.verb, event.uri))
        .collect()
}

async fn initialized(cluster: &Kubeadm) -> ControlPlane {
    let plane = cluster.serve().await;
    cluster.create().await;
    cluster.is_initialized().await;
    plane
}

#[test]
fn capi_04_a_secret_that_is_deleted_and_made_anew_costs_no_list_and_no_failed_reconcile() {
    on_capi(async |management| {
        let hub = management.hub("capi-04").await;
        let cluster = Kubeadm::new(&hub.objects, "four");
        let plane = initialized(&cluster).await;
        let running = Running::start("capi-04", hub.provider().await);
        let before = running.ready("four").await;
        works(&plane, "capi-04", "first", "four").await;
        let old = credential(&plane, "it asks", |_| true).await;
        let secret = cluster.secret_exists().await;
        let mark = plane.audit().await.or_fail().mark();

        let load = Load::start(&plane, "capi-04", "four");
        cluster.pause().await;
        hub.objects.delete(SECRET, &cluster.secret()).await;
        running.shows("four", "Ready", "four-kubeconfig").await;
        works(&plane, "capi-04", "in-the-gap", "four").await;
        cluster.unpause().await;
        let is_new = |now: &Value| !now.is_null() && uid(now) != uid(&secret);
        hub.objects
            .wait(SECRET, &cluster.secret(), "is another one", is_new)
            .await;
        credential(&plane, "it asks with the new certificate", |event| {
            event.credential != old
        })
        .await;
        works(&plane, "capi-04", "last", "four").await;
        assert!(load.stop().await > 0);

        let log = plane.audit_since(mark).await.or_fail();
        assert_eq!(lists(&log, "capi-04"), 0);
        assert_eq!(refused(&log, "kubernetes-admin"), Vec::<String>::new());
        assert_eq!(running.failed(), Vec::<String>::new());
        assert!(running.fleet.get("four").or_fail().is_same(&before));
        running.stop().await;
    });
}

#[test]
fn capi_05_a_certificate_that_is_replaced_in_place_before_it_expires_costs_no_list_and_no_failed_reconcile() {
    on_capi(async |management| {
        let hub = management.hub("capi-05").await;
        let cluster = Kubeadm::new(&hub.objects, "five");
        let plane = initialized(&cluster).await;
        let running = Running::start("capi-05", hub.provider().await);
        let before = running.ready("five").await;
        works(&plane, "capi-05", "first", "five").await;
        let first = credential(&plane, "it asks", |_| true).await;
        let secret = cluster.secret_exists().await;
        let mark = plane.audit().await.or_fail().mark();
        let load = Load::start(&plane, "capi-05", "five");

        // Cluster API replaces a certificate that has less than half a year left.
        let month = Duration::from_secs(30 * 24 * 3600);
        let user = plane
            .user("kubernetes-admin")
            .groups(["system:masters"])
            .valid_for(month);
        let expiring = user.create().await.or_fail().kubeconfig();
        byo::rewrite(&hub.objects, "five", &expiring).await;
        let second = credential(&plane, "it asks with the one that expires", |event| {
            event.credential != first
        })
        .await;
        cluster.poke().await;
        let expiring = base64(&expiring);
        let replaced = |now: &Value| now["data"]["value"] != expiring.as_str();
        let now = hub
            .objects
            .wait(SECRET, &cluster.secret(), "has another certificate", replaced)
            .await;
        assert_eq!(uid(&now), uid(&secret), "in place");
        let is_third = |id: &str| id != first && id != second;
        credential(&plane, "it asks with Cluster API's new one", |event| {
            is_third(&event.credential)
        })
        .await;
        works(&plane, "capi-05", "last", "five").await;
        assert!(load.stop().await > 0);

        let log = plane.audit_since(mark).await.or_fail();
        assert_eq!(lists(&log, "capi-05"), 0);
        assert_eq!(refused(&log, "kubernetes-admin"), Vec::<String>::new());
        assert_eq!(running.failed(), Vec::<String>::new());
        assert!(running.fleet.get("five").or_fail().is_same(&before));
        running.stop().await;
    });
}

/// The ID of a token, as the audit log has it.
fn id_of(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap_or_default();
    let claims = URL_SAFE_NO_PAD.decode(claims).or_fail();
    let claims: Value = serde_json::from_slice(&claims).or_fail();
    format!("JTI={}", claims["jti"].as_str().unwrap_or_default())
}

#[test]
fn capi_06_a_token_that_changes_every_two_seconds_costs_no_list_and_no_failed_reconcile() {
    on_capi(async |management| {
        let hub = management.hub("capi-06").await;
        let workload = workload::shared().await;
        let account = workload::account(workload, "capi-06").await;
        let token = account.token().await.or_fail();
        byo::ready(&hub.objects, "six", &account.kubeconfig(token)).await;
        // With the settings that users have.
        let running = Running::with("capi-06", hub.provider().await, |_| {}, true);
        let before = running.ready("six").await;
        works(workload, "capi-06", "first", "six").await;
        let mark = workload.audit().await.or_fail().mark();

        let load = Load::start(workload, "capi-06", "six");
        let mut newest = String::new();
        for _ in 0..30 {
            newest = account.token().await.or_fail();
            byo::rewrite(&hub.objects, "six", account.kubeconfig(&newest)).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let newest = id_of(&newest);
        credential(workload, "it asks with the newest token", |event| {
            event.credential == newest
        })
        .await;
        works(workload, "capi-06", "last", "six").await;
        assert!(load.stop().await > 0);

        let log = workload.audit_since(mark).await.or_fail();
        assert_eq!(lists(&log, "capi-06"), 0);
        assert_eq!(refused(&log, account.name()), Vec::<String>::new());
        assert_eq!(running.failed(), Vec::<String>::new());
        assert!(running.fleet.get("six").or_fail().is_same(&before));
        running.stop().await;
    });
}

#[test]
fn capi_07_a_server_that_moves_is_followed_while_the_old_one_still_answers() {
    on_capi(async |management| {
        let hub = management.hub("capi-07").await;
        let old = ControlPlane::builder()
            .name("old")
            .audit(true)
            .start()
            .await
            .or_fail();
        let new = ControlPlane::builder()
            .name("new")
            .replica_of(&old)
            .audit(true)
            .start()
            .await
            .or_fail();
        let user = old
            .user("capi-07")
            .groups(["system:masters"])
            .create()
            .await
            .or_fail();
        let kubeconfig = user.kubeconfig();
        byo::ready(&hub.objects, "seven", &kubeconfig).await;
        let running = Running::start("capi-07", hub.provider().await);
        let before = running.ready("seven").await;
        works(&old, "capi-07", "first", "seven").await;

        // Both servers have one authority.
        let moved = kubeconfig.replace(&old.url(), &new.url());
        assert_ne!(moved, kubeconfig);
        byo::rewrite(&hub.objects, "seven", &moved).await;
        credential(&new, "it watches at the new address", |event| {
            event.is_watch_start("configmaps")
        })
        .await;
        works(&old, "capi-07", "second", "seven").await;
        old.stop().await.or_fail();
        works(&new, "capi-07", "third", "seven").await;
        let log = new.audit().await.or_fail();
        assert_eq!(lists(&log, "capi-07"), 1, "each kind is listed once and compared");
        assert!(
            running.fleet.get("seven").or_fail().is_same(&before),
            "it is the same cluster"
        );
        running.stop().await;
    });
}

#[test]
fn the_id_of_a_token_is_read() {
    let token = format!("header.{}.signature", URL_SAFE_NO_PAD.encode(r#"{"jti":"a-b"}"#));
    assert_eq!(id_of(&token), "JTI=a-b");
    assert_eq!(STANDARD.encode("x"), base64("x"));
}
