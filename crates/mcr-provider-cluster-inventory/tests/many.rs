//! A thousand ClusterProfiles at once, and the memory that the provider takes for each, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The hub is simulated, and holds its
//! objects before anything is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::time::Duration;

use futures::FutureExt;
use mcr_provider_cluster_inventory::{ClusterInventoryProvider, EXEC_EXTENSION, MEMBER_ID_LABEL};
use mcr_testkit::{
    sim::{SimCluster, SimTls},
    waiting::eventually,
};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use support::{
    PROFILES, Received, base64, builder, change, condition, extended, hub_of, profile, providers, timed,
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const PATIENCE: Duration = Duration::from_secs(120);
const MANY: usize = 1000;

/// As long as those that cluster managers write, with a CA.
fn member(ca: &str, number: usize) -> Value {
    let name = format!("member-{number:04}");
    let profile = profile("fleet", &name, &format!("https://{name}.example:6443"));
    let config = json!({"name": format!("{name}-kubeconfig"), "key": "value", "namespace": "fleet"});
    let mut profile = extended(profile, &[(EXEC_EXTENSION, config)]);
    profile["metadata"]["labels"][MEMBER_ID_LABEL] = name.into();
    profile["status"]["accessProviders"][0]["cluster"]["certificate-authority-data"] = ca.into();
    profile
}

fn hub() -> SimCluster {
    let hub = hub_of(
        SimCluster::builder().history(10 * MANY).audit_limit(20_000),
        &["v1alpha1", "v1alpha2"],
    );
    hub.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}))
        .unwrap();
    // Text before a PEM block counts as a comment.
    let ca = SimTls::new().unwrap().ca_pem();
    let ca = base64(format!("{}\n{ca}", "-".repeat(1_100 - ca.len() - 1)));
    for number in 0..MANY {
        hub.create(member(&ca, number)).unwrap();
    }
    hub
}

fn provider(hub: &SimCluster) -> ClusterInventoryProvider {
    timed(builder(hub))
        .namespace("fleet")
        .access_providers(providers())
        .build()
        .unwrap()
}

async fn watched(hub: &SimCluster, watches: usize) {
    let so = || (hub.watches() == watches).then_some(());
    eventually(PATIENCE, format!("{watches} watches"), so).await;
}

#[tokio::test]
async fn a_thousand_profiles_cost_one_list_and_their_heartbeats_nothing() {
    let hub = hub();
    let provider = provider(&hub);
    let measure = async || {
        let mut discovery = Received::of(&provider);
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
    let mut discovery = Received::of(&provider);
    assert_eq!(discovery.all().await.len(), MANY);
    for number in 0..MANY {
        change(&hub, PROFILES, &format!("fleet/member-{number:04}"), |there| {
            there["status"]["conditions"] = json!([condition("ControlPlaneHealthy", "True", "seen again")]);
            there["status"]["properties"][0]["lastObservedTime"] = "2026-02-02T00:00:00Z".into();
        });
    }
    hub.delete(PROFILES, "fleet/member-0500").unwrap();
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
