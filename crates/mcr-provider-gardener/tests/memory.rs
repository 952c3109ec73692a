//! The memory that the provider takes for each Shoot, beyond that of the fleet.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The API server is simulated, and holds
//! its objects before anything is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{collections::HashMap, sync::Arc};

use mcr_garden_double::Garden;
use mcr_provider_gardener::{GardenerProvider, Topology};
use mcr_testkit::{discovery::bytes_per_cluster, sim::SimTls};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use support::{GARDEN, SEED, hour, loopback_policy, object, secret, server};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const SHOOTS: usize = 300;

/// Those of Gardener are as large: workers, addons, conditions.
fn large() -> Value {
    json!({
        "metadata": {"labels": {"region": "eu"}}, "spec": {"provider": {"workers": "x".repeat(4_000)}},
        "status": {"constraints": "x".repeat(4_000)},
    })
}

#[tokio::test]
async fn a_provider_holds_neither_shoots_nor_the_texts_of_their_kubeconfigs() {
    let tls = SimTls::new().unwrap();
    let kubeconfig = |count: usize| {
        let server = format!("https://c{count}.example:6443");
        let kubeconfig = tls
            .long_kubeconfig(&format!("shoot-{count:04}"), &server)
            .unwrap();
        assert!((5_500..5_800).contains(&kubeconfig.len()));
        (format!("shoot-{count:04}"), kubeconfig)
    };
    let all: Arc<HashMap<_, _>> = Arc::new((0..SHOOTS).map(kubeconfig).collect());
    let (in_garden, in_seed) = (server(&GARDEN), server(&SEED));
    let garden = Garden::new({
        let all = all.clone();
        move |ask| {
            let answer = hour(&all[&ask.name]);
            async move { answer }
        }
    });
    for (name, kubeconfig) in &*all {
        in_garden
            .create(object(&GARDEN, &format!("shoot garden-dev/{name}"), large()))
            .unwrap();
        in_seed
            .create(object(&SEED, &format!("namespace shoot--dev--{name}"), json!({})))
            .unwrap();
        in_seed.create(secret(name, kubeconfig)).unwrap();
        let cluster = json!({"spec": {"shoot": large()}});
        in_seed
            .create(object(&SEED, &format!("cluster {name}"), cluster))
            .unwrap();
    }
    let builder = || GardenerProvider::builder().access_policy(loopback_policy());
    let of_garden = builder()
        .client(garden.client(in_garden.client()))
        .namespace("garden-dev");
    let of_seed = builder().client(in_seed.client()).topology(Topology::Seed);
    for (server, watches, builder) in [(in_garden, 1, of_garden), (in_seed, 2, of_seed)] {
        let provider = builder.build().unwrap();
        let each = bytes_per_cluster(&provider, &server, SHOOTS, watches, || MEMORY.current_usage()).await;
        println!("{each} bytes for each Shoot: {provider:?}");
        assert!(each < 3_200, "{each} bytes for each Shoot: {provider:?}");
    }
}
