//! A thousand ClusterProfiles at once, and the memory that the provider takes for each, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::time::Duration;

use futures::FutureExt;
use mcr_provider_cluster_inventory::{AccessProviderConfig, AccessProviders, ClusterInventoryProvider};
use mcr_testkit::{
    discovery::Followed,
    sim::{SimCluster, SimTls},
    waiting::eventually,
};
use peak_alloc::PeakAlloc;
use serde_json::json;
use support::{PROFILES, access, client, hub, locally, object};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const PATIENCE: Duration = Duration::from_secs(120);
const MANY: usize = 1000;

/// A hub with ClusterProfiles as long as those that cluster managers write, with a CA.
fn large_hub() -> SimCluster {
    let hub = hub(SimCluster::builder().history(10 * MANY).audit_limit(20_000));
    // Text before a PEM block counts as a comment.
    let ca = SimTls::new().unwrap().ca_pem();
    let ca = format!("{}\n{ca}", "-".repeat(1_100 - ca.len() - 1));
    for number in 0..MANY {
        let name = format!("member-{number:04}");
        let config = json!({"name": format!("{name}-kubeconfig"), "key": "value", "namespace": "eu"});
        let access = access("p", &format!("https://{name}.example:6443"), &ca, config);
        let more = json!({
            "metadata": {"labels": {"multicluster.x-k8s.io/inventory-member-id": name}}, "status": {"accessProviders": access},
        });
        hub.create(object(&format!("profile eu/{name}"), more)).unwrap();
    }
    hub
}

async fn watched(hub: &SimCluster, watches: usize) {
    let so = || (hub.watches() == watches).then_some(());
    eventually(PATIENCE, format!("{watches} watches"), so).await;
}

#[tokio::test]
async fn a_thousand_profiles_cost_one_list_and_their_heartbeats_nothing() {
    let hub = large_hub();
    let plugins = AccessProviders::new([AccessProviderConfig::new("p", "/plugins/p")]).unwrap();
    let provider = ClusterInventoryProvider::builder()
        .client(client(&hub))
        .namespace("eu")
        .access_policy(locally(&["/plugins/p".as_ref()]))
        .access_providers(plugins)
        .build()
        .unwrap();
    let measure = async || {
        let mut discovery = Followed::of(&provider);
        let clusters = discovery.all().await;
        assert_eq!(clusters.len(), MANY);
        // The watch that follows the list has begun, so the body of the list is gone.
        watched(&hub, 1).await;
        let with = MEMORY.current_usage();
        drop(discovery);
        watched(&hub, 0).await;
        with.saturating_sub(MEMORY.current_usage()) / MANY
    };
    // The first discovery pays for the threads and for the caches of the hub, too.
    measure().await;
    let each = measure().await;
    println!("{each} bytes for each profile");
    assert!(each < 3_000, "{each} bytes for each profile");

    let mark = hub.audit().mark();
    let mut discovery = Followed::of(&provider);
    assert_eq!(discovery.all().await.len(), MANY);
    for number in 0..MANY {
        let mut there = hub.get(PROFILES, &format!("eu/member-{number:04}")).unwrap();
        there["status"]["conditions"][0]["message"] = "observed again".into();
        there["status"]["properties"][0]["lastObservedTime"] = "2026-02-02T00:00:00Z".into();
        hub.update(there).unwrap();
    }
    hub.delete(PROFILES, "eu/member-0500").unwrap();
    assert_eq!(
        discovery.line().await,
        "-member-0500",
        "the first after all heartbeats"
    );
    assert!(discovery.next().now_or_never().is_none());
    let since = hub.audit().since(mark);
    assert_eq!(since.count(|event| event.verb == "list"), 1);
    assert_eq!(since.count(|event| event.is_watch_start("clusterprofiles")), 1);
}
