//! The memory that the provider takes for each cluster, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::time::Duration;

use mcr_testkit::{
    sim::{SimCluster, SimTls},
    waiting::eventually,
};
use peak_alloc::PeakAlloc;
use serde_json::json;
use support::{Received, base64, builder, cluster, hub_of, initialized, secret};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CLUSTERS: usize = 300;

fn kubeconfig(tls: &SimTls, count: usize) -> String {
    let server = format!("https://c{count}.example:6443");
    tls.long_kubeconfig(&format!("member-{count}"), &server).unwrap()
}

/// The memory of a discovery for each cluster beyond that of the specs, in bytes, with another key of this many bytes in each
/// Secret.
async fn bytes_per_cluster(tls: &SimTls, other_key: usize) -> usize {
    let hub = hub_of(SimCluster::builder().audit_limit(0), &["v1beta2"]);
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    for count in 0..CLUSTERS {
        let name = format!("member-{count:04}");
        let mut kubeconfig = secret("fleet", &name, kubeconfig(tls, count));
        kubeconfig["data"]["other"] = base64("x".repeat(other_key)).into();
        hub.create(kubeconfig).unwrap();
        hub.create(initialized(cluster("fleet", &name))).unwrap();
        // Those that Cluster API makes beside it.
        for other in ["ca", "etcd", "proxy", "sa"] {
            let mut key = secret("fleet", &name, "key");
            key["metadata"]["name"] = format!("{name}-{other}").into();
            hub.create(key).unwrap();
        }
    }
    let provider = builder(&hub).namespace("fleet").build().unwrap();
    let measure = async || {
        let mut discovery = Received::of(&provider);
        let clusters = discovery.all().await;
        assert_eq!(clusters.len(), CLUSTERS);
        // The watches that follow the lists have begun, so the bodies of the lists are gone.
        watched(&hub, 2).await;
        let with = MEMORY.current_usage();
        drop(discovery);
        watched(&hub, 0).await;
        with.saturating_sub(MEMORY.current_usage()) / CLUSTERS
    };
    // The first discovery pays for the threads and for the caches of the hub, too.
    measure().await;
    measure().await
}

async fn watched(hub: &SimCluster, watches: usize) {
    let so = || (hub.watches() == watches).then_some(());
    eventually(Duration::from_secs(60), format!("{watches} watches"), so).await;
}

#[tokio::test]
async fn a_provider_holds_neither_secrets_nor_the_texts_of_their_kubeconfigs() {
    let tls = SimTls::new().unwrap();
    let text = kubeconfig(&tls, 0).len();
    assert!((5_500..5_800).contains(&text), "{text} bytes");
    let alone = bytes_per_cluster(&tls, 1).await;
    let beside_another = bytes_per_cluster(&tls, 20_000).await;
    println!(
        "{alone} bytes for each kubeconfig of {text} bytes; {beside_another} beside a key of 20,000 bytes"
    );
    assert!(alone < 3_000, "{alone} bytes for each cluster");
    assert!(
        beside_another < 3_000,
        "{beside_another} bytes for each cluster beside another key"
    );
}
