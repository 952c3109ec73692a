//! The memory that the provider takes for each cluster, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use mcr_testkit::{
    discovery::bytes_per_cluster,
    sim::{SimCluster, SimTls},
};
use peak_alloc::PeakAlloc;
use serde_json::json;
use support::{builder, hub, object};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CLUSTERS: usize = 300;

#[tokio::test]
async fn a_provider_holds_neither_secrets_nor_the_texts_of_their_kubeconfigs() {
    let tls = SimTls::new().unwrap();
    // With another key of so many bytes in each Secret.
    for other in [1, 20_000] {
        let hub = hub(SimCluster::builder().audit_limit(0));
        for count in 0..CLUSTERS {
            let name = format!("elsewhere/member-{count:04}");
            let server = format!("https://c{count}.example:6443");
            let kubeconfig = tls.long_kubeconfig(&format!("member-{count}"), &server).unwrap();
            assert!((5_500..5_800).contains(&kubeconfig.len()));
            let secret = json!({"stringData": {"value": kubeconfig, "other": "x".repeat(other)}});
            hub.create(object(&format!("secret {name}"), secret)).unwrap();
            hub.create(object(&format!("ready {name}"), json!({}))).unwrap();
            // Those that Cluster API makes beside it.
            for key in ["ca", "etcd", "proxy", "sa"] {
                hub.create(object(&format!("key {name}-{key}"), json!({})))
                    .unwrap();
            }
        }
        let provider = builder(hub.client()).namespace("elsewhere").build().unwrap();
        let each = bytes_per_cluster(&provider, &hub, CLUSTERS, 2, || MEMORY.current_usage()).await;
        println!("{each} bytes for each cluster, with another key of {other} bytes");
        assert!(
            each < 3_000,
            "{each} bytes for each cluster, with another key of {other} bytes"
        );
    }
}
