//! How clusters join, change their credentials and leave.

use std::time::Duration;

use mcr_testkit::control_plane::AuditLog;
use mcr_testkit::waiting::{OrFail, eventually};
use serde_json::{Value, json};

use crate::kubeadm::Kubeadm;
use crate::objects::{BYO_CONTROL_PLANE, CLUSTER, SECRET, base64, condition, initialized, uid};
use crate::running::Running;
use crate::workload::{self, Load, credential, from_us, works};
use crate::{PATIENCE, byo, on_capi};

#[test]
fn capi_01_a_cluster_is_engaged_when_it_is_initialized_and_not_when_only_its_secret_is_there() {
    on_capi(async |management| {
        let hub = management.hub("capi-01").await;
        let cluster = Kubeadm::new(&hub.objects, "one");
        cluster.create().await;
        cluster.secret_exists().await;
        let running = Running::start("capi-01", hub.provider().await);
        let reason = running.waits("one", "not initialized").await;
        assert!(!initialized(&cluster.cluster().await), "{reason}");

        let plane = cluster.serve().await;
        cluster.is_initialized().await;
        running.ready("one").await;
        works(&plane, "capi-01", "first", "one").await;
        assert_eq!(running.failed(), Vec::<String>::new());
        running.stop().await;
    });
}

#[test]
fn capi_10_a_deleted_cluster_leaves_at_once_and_its_orphaned_secret_engages_nothing() {
    on_capi(async |management| {
        let hub = management.hub("capi-10").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-10").await;
        let first = byo::ready(&hub.objects, "short", &kubeconfig).await;
        let running = Running::start("capi-10", hub.provider().await);
        let keeps = hub.provider().await.provider_name("keeps").keep_while(|_| true);
        let keeps = Running::start("capi-10-keeps", keeps);
        let before = running.ready("short").await;
        keeps.ready("short").await;
        works(workload, "capi-10", "first", "short").await;

        // The control plane provider holds its object, as a real one does for seconds.
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        hub.objects
            .merge(BYO_CONTROL_PLANE, "short", finalizers(json!(["capi.test/hold"])))
            .await;
        hub.objects.delete(CLUSTER, "short").await;
        running.is_gone("short").await;
        let deleted = hub.objects.exists(CLUSTER, "short").await;
        assert!(
            deleted["metadata"]["deletionTimestamp"].is_string(),
            "{deleted:#}"
        );
        let deleting = |cluster: &Value| condition(cluster, "Deleting") == "True";
        hub.objects
            .wait(CLUSTER, "short", "is being deleted", deleting)
            .await;
        // A controller that has to clean up in the workload cluster still can.
        works(workload, "capi-10-keeps", "last", "short").await;
        hub.objects
            .merge(BYO_CONTROL_PLANE, "short", finalizers(json!([])))
            .await;
        hub.objects.is_gone(CLUSTER, "short").await;
        keeps.is_gone("short").await;
        let mark = workload.audit().await.or_fail().mark();

        // The Secret is there and nobody owns it.
        hub.objects.exists(SECRET, "short-kubeconfig").await;
        byo::rewrite(
            &hub.objects,
            "short",
            byo::kubeconfig(workload, "capi-10-b").await,
        )
        .await;
        byo::create(&hub.objects, byo::cluster("short")).await;
        running.waits("short", "not initialized").await;

        let asked = workload.audit_since(mark).await.or_fail();
        let asked =
            asked.count(|event| from_us(event) && event.is_start() && event.user.starts_with("capi-10"));
        assert_eq!(asked, 0, "nobody connects to a cluster that has left");

        // The same name and another UID.
        byo::initialize(&hub.objects, "short").await;
        let second = byo::is_initialized(&hub.objects, "short").await;
        assert_ne!(uid(&first), uid(&second));
        let after = running.ready("short").await;
        assert!(!after.is_same(&before));
        eventually(PATIENCE, "its identity is another", || {
            after.identity().is_some() && after.identity() != before.identity()
        })
        .await;
        works(workload, "capi-10", "second", "short").await;
        running.stop().await;
        keeps.stop().await;
    });
}

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

#[test]
fn capi_05_a_certificate_that_is_replaced_in_place_before_it_expires_costs_no_list_and_no_failed_reconcile() {
    on_capi(async |management| {
        let hub = management.hub("capi-05").await;
        let cluster = Kubeadm::new(&hub.objects, "five");
        let plane = cluster.serve().await;
        cluster.create().await;
        cluster.is_initialized().await;
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

/// What the fleet shows of a cluster.
fn described(running: &Running, name: &str) -> Value {
    let snapshot = running.fleet.snapshot();
    let status = snapshot
        .clusters
        .iter()
        .find(|status| status.name == *name)
        .unwrap();
    json!({
        "state": status.state, "reason": status.reason, "labels": status.labels, "properties": status.properties,
        "identity": status.identity,
    })
}

#[test]
fn capi_12_a_consumer_of_v1beta1_and_one_of_v1beta2_engage_the_same_clusters_in_the_same_way() {
    on_capi(async |management| {
        let hub = management.hub("capi-12").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "capi-12").await;
        let mut labelled = byo::cluster("labelled");
        labelled["metadata"]["labels"] = json!({"region": "eu"});
        byo::ready_as(&hub.objects, labelled, &kubeconfig).await;
        byo::create(&hub.objects, byo::cluster("waiting")).await;
        let old = Running::start("capi-12-old", hub.provider().await.only_v1beta1());
        let new = Running::start("capi-12-new", hub.provider().await);
        for (running, tag) in [(&old, "capi-12-old"), (&new, "capi-12-new")] {
            works(workload, tag, "first", "labelled").await;
            running.waits("waiting", "not initialized").await;
        }
        // The conversion webhook of Cluster API has the endpoint and the version in both.
        let same = async |name: &str| {
            let what = format!("{name} is the same in both");
            eventually(PATIENCE, what, || described(&old, name) == described(&new, name)).await;
        };
        same("labelled").await;
        same("waiting").await;
        // What changes is seen in both.
        byo::initialize(&hub.objects, "waiting").await;
        hub.objects.create(byo::secret("waiting", &kubeconfig)).await;
        for tag in ["capi-12-old", "capi-12-new"] {
            works(workload, tag, "second", "waiting").await;
        }
        same("waiting").await;
        hub.objects.delete(CLUSTER, "labelled").await;
        old.is_gone("labelled").await;
        new.is_gone("labelled").await;
        old.stop().await;
        new.stop().await;
    });
}
