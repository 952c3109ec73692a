//! The memory that the provider takes for each cluster, besides that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    discovery::bytes_per_cluster,
    sim::{SimCluster, SimTls},
};
use peak_alloc::PeakAlloc;
use support::secret;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CLUSTERS: usize = 300;

#[tokio::test]
async fn a_provider_holds_neither_secrets_nor_the_texts_of_their_kubeconfigs() {
    let tls = SimTls::new().unwrap();
    // With another key of so many bytes in each Secret.
    for other in [1, 20_000] {
        let hub = SimCluster::builder().audit_limit(0).build();
        for count in 0..CLUSTERS {
            let server = format!("https://c{count}.example:6443");
            let kubeconfig = tls.long_kubeconfig(&format!("member-{count}"), &server).unwrap();
            assert!((5_500..5_800).contains(&kubeconfig.len()));
            let mut secret = secret("default", &format!("member-{count:04}"), &kubeconfig);
            secret["stringData"]["other"] = "x".repeat(other).into();
            hub.create(secret).unwrap();
        }
        let provider = KubeconfigProvider::builder()
            .client(hub.client())
            .build()
            .unwrap();
        let each = bytes_per_cluster(&provider, &hub, CLUSTERS, 1, || MEMORY.current_usage()).await;
        println!("{each} bytes for each cluster, with another key of {other} bytes");
        assert!(
            each < 3_000,
            "{each} bytes for each cluster, with another key of {other} bytes"
        );
    }
}
