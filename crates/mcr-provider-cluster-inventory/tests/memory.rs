//! The memory that the provider takes for each ClusterProfile, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use mcr_provider_cluster_inventory::{AccessProviderConfig, AccessProviders, ClusterInventoryProvider};
use mcr_testkit::{
    discovery::bytes_per_cluster,
    sim::{SimCluster, SimTls},
};
use peak_alloc::PeakAlloc;
use serde_json::json;
use support::{access, client, hub, loopback_policy, object};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MANY: usize = 1000;

#[tokio::test]
async fn a_provider_holds_no_profiles() {
    let hub = hub(SimCluster::builder().history(10 * MANY));
    // As long as those that cluster managers write, with a CA. Text before a PEM block counts as a comment.
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
    let plugins = AccessProviders::new([AccessProviderConfig::new("p", "/plugins/p")]).unwrap();
    let provider = ClusterInventoryProvider::builder()
        .client(client(&hub))
        .namespace("eu")
        .access_policy(loopback_policy(&["/plugins/p".as_ref()]))
        .access_providers(plugins)
        .build()
        .unwrap();
    let each = bytes_per_cluster(&provider, &hub, MANY, 1, || MEMORY.current_usage()).await;
    println!("{each} bytes for each profile");
    assert!(each < 3_000, "{each} bytes for each profile");
}
