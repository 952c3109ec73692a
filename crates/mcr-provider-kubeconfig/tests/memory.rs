//! The memory that the provider takes for each cluster, besides that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::time::Duration;

use futures::StreamExt;
use mcr_core::{Change, Discovery, Provider};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    sim::{SimCluster, SimTls},
    waiting::eventually,
};
use peak_alloc::PeakAlloc;
use serde_json::json;
use support::{base64, secret};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CLUSTERS: usize = 300;

fn kubeconfig(tls: &SimTls, count: usize) -> String {
    let server = format!("https://c{count}.example:6443");
    tls.long_kubeconfig(&format!("member-{count}"), &server).unwrap()
}

/// Reads all clusters of a discovery and keeps none of them, as a fleet that takes them over.
async fn read_all(discovery: &mut Discovery) -> usize {
    let mut clusters = 0;
    loop {
        let change = timeout(Duration::from_secs(60), discovery.next()).await.unwrap();
        match change.unwrap().unwrap() {
            Change::Upsert(_) => clusters += 1,
            Change::Synced => return clusters,
            other => panic!("{other:?}"),
        }
    }
}

/// The memory of a discovery for each cluster, in bytes, with another key of this many bytes in each Secret.
async fn bytes_per_cluster(tls: &SimTls, other_key: usize) -> usize {
    let hub = SimCluster::builder().audit_limit(0).build();
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    for count in 0..CLUSTERS {
        let mut secret = secret("fleet", &format!("member-{count:04}"), kubeconfig(tls, count));
        secret["metadata"]["labels"]["region"] = "eu".into();
        secret["data"]["other"] = base64("x".repeat(other_key)).into();
        hub.create(secret).unwrap();
    }
    let builder = KubeconfigProvider::builder()
        .client(hub.client())
        .namespace("fleet");
    let provider = builder.build().unwrap();
    let measure = async || {
        let before = MEMORY.current_usage();
        let mut discovery = provider.discover(CancellationToken::new());
        assert_eq!(read_all(&mut discovery).await, CLUSTERS);
        // The watch that follows the list has begun, so the body of the list is gone.
        watched(&hub, 1).await;
        let after = MEMORY.current_usage();
        drop(discovery);
        watched(&hub, 0).await;
        after.saturating_sub(before) / CLUSTERS
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
