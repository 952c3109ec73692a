//! Measures the cost of simulated clusters on this machine: `cargo run --release -p mcr-testkit --features sim
//! --example sim_cost [clusters]`.

use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use mcr_testkit::sim::SimCluster;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(5000), |count| count.parse())?;

    let before = memory();
    let started = Instant::now();
    let clusters: Vec<SimCluster> = (0..count).map(|_| SimCluster::new()).collect();
    println!(
        "{count} empty clusters: {:.0?}, {}",
        started.elapsed(),
        each(before, count)
    );

    let before = memory();
    let started = Instant::now();
    for cluster in &clusters {
        for number in 0..10 {
            cluster.create(map(number))?;
        }
    }
    let objects = count * 10;
    println!(
        "{objects} ConfigMaps of 1 kB: {:.0?}, {} with their history",
        started.elapsed(),
        each(before, objects)
    );

    let before = memory();
    let started = Instant::now();
    let mut watches = Vec::new();
    for cluster in &clusters {
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        let version = maps
            .list(&ListParams::default())
            .await?
            .metadata
            .resource_version
            .unwrap_or_default();
        watches.push(
            maps.watch(&WatchParams::default().timeout(290), &version)
                .await?
                .boxed(),
        );
    }
    println!(
        "{count} lists and watches, each with its kube client: {:.0?}, {}",
        started.elapsed(),
        each(before, count)
    );

    let started = Instant::now();
    for cluster in &clusters {
        cluster.apply(map(0))?;
        cluster.delete("configmaps", "default/map-1")?;
    }
    for watch in &mut watches {
        watch.next().await.transpose()?;
    }
    println!(
        "a write and a deletion in each, told to its watch: {:.0?}",
        started.elapsed()
    );

    let template = SimCluster::new();
    for number in 0..100 {
        template.create(map(number))?;
    }
    let before = memory();
    let started = Instant::now();
    let copies: Vec<SimCluster> = (0..count)
        .map(|_| SimCluster::builder().template(&template).build())
        .collect();
    println!(
        "{count} copies of a cluster with 100 objects: {:.0?}, {}",
        started.elapsed(),
        each(before, count)
    );
    drop(copies);
    Ok(())
}

fn map(number: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") },
        "data": { "text": "x".repeat(700) },
    })
}

/// Resident memory in bytes, where `/proc` has it.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = resident.and_then(|text| text.split_whitespace().next()?.parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}

fn each(before: usize, count: usize) -> String {
    format!("{} bytes each", memory().saturating_sub(before) / count.max(1))
}
