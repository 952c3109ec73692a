//! Secrets that can't be used.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use mcr_testkit::waiting::OrFail;
use serde_json::json;

use crate::byo;
use crate::objects::base64;
use crate::on_capi;
use crate::running::Running;
use crate::workload::{self, works};

/// What stands in a kubeconfig and nowhere else.
const CANARY: &str = "canary-4711";

#[test]
fn capi_08_a_broken_secret_concerns_its_own_cluster_only_and_is_explained() {
    on_capi(async |management| {
        let hub = management.hub("capi-08").await;
        let elsewhere = management.hub("capi-08-elsewhere").await;
        let workload = workload::shared().await;
        let good = byo::kubeconfig(workload, "capi-08").await;
        let hostile = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "https://192.0.2.1"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "users": [{"name": "x", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": format!("/bin/{CANARY}"), "interactiveMode": "Never",
            }}}],
        });
        let huge = format!("# {}\n{CANARY}: [", "x".repeat(900_000));

        let running = Running::start("capi-08", hub.provider().await);
        let names = [
            "elsewhere",
            "garbage",
            "good",
            "hostile",
            "huge",
            "keyless",
            "opaque",
            "unlabelled",
        ];
        for name in names {
            byo::create(&hub.objects, byo::cluster(name)).await;
            let mut secret = byo::secret(name, &good);
            match name {
                "garbage" => secret["data"]["value"] = base64(format!("{CANARY}\0: {{")).into(),
                "hostile" => secret["data"]["value"] = base64(hostile.to_string()).into(),
                "huge" => secret["data"]["value"] = base64(&huge).into(),
                "keyless" => secret["data"] = json!({"kubeconfig": base64(&good)}),
                // Cluster API does not look at the type either.
                "opaque" => secret["type"] = "Opaque".into(),
                "unlabelled" => secret["metadata"]["labels"] = json!({}),
                _ => {}
            }
            let objects = if name == "elsewhere" {
                &elsewhere.objects
            } else {
                &hub.objects
            };
            objects.create(secret).await;
            byo::initialize(&hub.objects, "ByoCluster", name).await;
            byo::is_initialized(&hub.objects, name).await;
        }

        works(workload, "capi-08", "first", "good").await;
        running.ready("opaque").await;
        let mut reasons = vec![
            running.waits("elsewhere", "elsewhere-kubeconfig").await,
            running.waits("unlabelled", "cluster.x-k8s.io/cluster-name").await,
            running.shows("keyless", "Broken", "value").await,
            running.shows("hostile", "Broken", "untrusted").await,
        ];
        for name in ["garbage", "huge"] {
            reasons.push(running.shows(name, "Broken", "").await);
        }
        let engaged = running
            .fleet
            .clusters()
            .into_iter()
            .filter(|cluster| cluster.state().is_ready());
        let engaged: Vec<_> = engaged.map(|cluster| cluster.name().to_string()).collect();
        assert_eq!(engaged, ["good", "opaque"]);

        // Each has an event, and no event has anything of a kubeconfig.
        let events = Api::<Event>::namespaced(hub.plane.client(), hub.namespace());
        let started = tokio::time::Instant::now();
        let notes = loop {
            let notes = events.list(&Default::default()).await.or_fail().items.into_iter();
            let ours = notes.filter(|event| {
                event
                    .reporting_controller
                    .as_deref()
                    .is_some_and(|name| name.contains("mcr"))
            });
            let notes: Vec<String> = ours
                .map(|event| format!("{:?} {:?}", event.regarding, event.note))
                .collect();
            let has = |name: &&str| {
                notes
                    .iter()
                    .any(|note| note.contains(&format!("\"{name}-kubeconfig\"")))
            };
            if ["garbage", "hostile", "huge", "keyless"].iter().all(has) {
                break notes;
            }
            assert!(started.elapsed() < crate::PATIENCE, "events: {notes:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        assert!(notes.iter().all(|note| !note.contains(CANARY)), "{notes:#?}");

        // The remedy is seen at once.
        for name in ["garbage", "hostile", "huge", "keyless"] {
            byo::rewrite(&hub.objects, name, &good).await;
            works(workload, "capi-08", &format!("then-{name}"), name).await;
        }
        running.stop().await;
    });
}
