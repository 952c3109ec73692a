//! The memory that a workspace takes beyond its objects, in a fleet with a controller.
//!
//! By itself in its process, because the allocator counts all that the process allocates. The double of kcp holds its objects
//! before anything is measured.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[allow(dead_code, reason = "shared with the tests of the fleet")]
#[path = "fleet/world.rs"]
mod world;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, Controller, Fleet, Request};
use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_testkit::waiting::Background;
use peak_alloc::PeakAlloc;
use serde_json::json;
use world::*;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const WORKSPACES: usize = 1_000;

/// The target of the project.
const MOST_BYTES: usize = 6_000;

fn add_map(workspaces: &[KcpWorkspace], name: &str) {
    for workspace in workspaces {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"key": "value"},
        });
        workspace.create(map).or_fail();
    }
}

/// The memory of a fleet for each workspace, in bytes, with this many ConfigMaps in all.
async fn bytes_for_each(world: &World, maps: usize) -> usize {
    let fleet = Fleet::builder()
        .provider(world.builder().build().or_fail())
        .build();
    let runs = fleet.clone();
    let fleet_runs = Background::start(|stop| async move { runs.run(stop).await });
    let reconciled = Arc::new(AtomicUsize::new(0));
    let controller = Controller::<ConfigMap>::new("maps")
        .build(
            |_: Request<ConfigMap>, reconciled: Arc<AtomicUsize>| async move {
                reconciled.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(Action::await_change())
            },
            reconciled.clone(),
        )
        .or_fail();
    let runs = fleet.clone();
    let controller_runs = Background::start(|stop| controller.run(runs, stop));
    eventually(PATIENCE, "all are reconciled", || {
        reconciled.load(Ordering::Relaxed) == maps
    })
    .await;
    // The watches that follow the lists have begun, so the bodies of the lists are gone. One is that of the slices.
    watched(world, 5).await;
    let with = MEMORY.current_usage();
    controller_runs.stop().await.or_fail();
    fleet_runs.stop().await;
    drop(fleet);
    watched(world, 0).await;
    with.saturating_sub(MEMORY.current_usage()) / WORKSPACES
}

async fn watched(world: &World, watches: usize) {
    let shards = world.server.kcp().shards();
    eventually(PATIENCE, format!("{watches} watches"), || {
        let open: usize = shards.iter().map(|shard| shard.watches()).sum();
        open == watches
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_a_workspace_with_its_binding_takes_less_than_six_kilobytes_beyond_its_objects() {
    let world = World::start(Kcp::builder().shards(2).managed_fields(false)).await;
    let shards = ["root", "shard-1"].into_iter().cycle();
    let workspaces: Vec<KcpWorkspace> = (0..WORKSPACES)
        .zip(shards)
        .map(|(number, shard)| world.consumer(&format!("w{number}"), shard))
        .collect();
    add_map(&workspaces, "a");
    // The first fleet pays for the threads, too.
    bytes_for_each(&world, WORKSPACES).await;
    let with_one = bytes_for_each(&world, WORKSPACES).await;
    add_map(&workspaces, "b");
    let with_two = bytes_for_each(&world, 2 * WORKSPACES).await;
    let object = with_two.saturating_sub(with_one);
    let bytes = with_one.saturating_sub(object);
    println!("{bytes} bytes for each workspace, and {object} for each ConfigMap");
    assert!(bytes < MOST_BYTES, "{bytes} bytes for each workspace");
}
