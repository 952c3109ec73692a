//! The memory that the provider takes for each Shoot, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The API server is simulated, and holds
//! its objects before anything is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{collections::HashMap, sync::Arc, time::Duration};

use mcr_garden_double::Garden;
use mcr_provider_gardener::GardenerProvider;
use mcr_testkit::{
    sim::{SimCluster, SimTls},
    waiting::eventually,
};
use peak_alloc::PeakAlloc;
use serde_json::Value;
use support::{Received, World, hour, seed::SeedWorld};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const SHOOTS: usize = 300;

fn name(count: usize) -> String {
    format!("shoot-{count:04}")
}

fn kubeconfig(tls: &SimTls, count: usize) -> String {
    let server = format!("https://c{count}.example:6443");
    tls.long_kubeconfig(&name(count), &server).unwrap()
}

/// Those of Gardener are as large: workers, addons, conditions.
fn large(shoot: &mut Value) {
    shoot["metadata"]["labels"]["region"] = "eu".into();
    shoot["spec"]["provider"]["workers"] = "x".repeat(4_000).into();
    shoot["status"]["constraints"] = "x".repeat(4_000).into();
}

/// The memory of a discovery for each Shoot beyond that of the specs, in bytes.
async fn bytes_per_shoot(
    provider: impl Fn() -> GardenerProvider,
    server: &SimCluster,
    watches: usize,
) -> usize {
    let measure = async || {
        let provider = provider();
        let mut discovery = Received::of(&provider);
        let clusters = discovery.all().await;
        assert_eq!(clusters.len(), SHOOTS);
        // The watches that follow the lists have begun, so the bodies of the lists are gone.
        watched(server, watches).await;
        let with = MEMORY.current_usage();
        drop((discovery, provider));
        watched(server, 0).await;
        with.saturating_sub(MEMORY.current_usage()) / SHOOTS
    };
    // The first discovery pays for the threads and for the caches of the server, too.
    measure().await;
    measure().await
}

async fn watched(server: &SimCluster, watches: usize) {
    let so = || (server.watches() == watches).then_some(());
    eventually(Duration::from_secs(60), format!("{watches} watches"), so).await;
}

#[tokio::test]
async fn a_provider_holds_neither_shoots_nor_the_texts_of_their_kubeconfigs() {
    let tls = SimTls::new().unwrap();
    let all: HashMap<String, String> = (0..SHOOTS)
        .map(|count| (name(count), kubeconfig(&tls, count)))
        .collect();
    let text = all[&name(0)].len();
    assert!((5_500..5_800).contains(&text), "{text} bytes");
    let all = Arc::new(all);

    let world = World::of(Garden::new({
        let all = all.clone();
        move |ask| {
            let answer = hour(&all[&ask.name]);
            async move { answer }
        }
    }));
    let seed = SeedWorld::of(SimCluster::builder().audit_limit(0));
    for count in 0..SHOOTS {
        let name = name(count);
        let mut shoot = Garden::shoot("garden-dev", &name);
        large(&mut shoot);
        world.server.create(shoot).unwrap();
        seed.kubeconfig(&name, &all[&name]);
        seed.shoot(&name, large);
    }
    let in_garden = bytes_per_shoot(|| world.builder().build().unwrap(), &world.server, 1).await;
    let in_seed = bytes_per_shoot(|| seed.builder().build().unwrap(), &seed.0, 2).await;
    println!("{in_garden} bytes for each Shoot of a garden, {in_seed} of a seed");
    assert!(in_garden < 3_200, "{in_garden} bytes for each Shoot of a garden");
    assert!(in_seed < 3_200, "{in_seed} bytes for each Shoot of a seed");
}
