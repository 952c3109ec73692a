//! `fleet-report`.

use std::time::Duration;

use mcr::{HUB, Manager};
use mcr_testkit::{faults::Fault, waiting::eventually};
use serde_json::json;

use crate::{
    fleet_report,
    world::{PATIENCE, Running, World},
};

const EVERY: Duration = Duration::from_millis(400);

async fn world() -> World {
    let world = World::start().await;
    for place in [&world.eu, &world.us] {
        for node in ["one", "two"] {
            place.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}));
        }
    }
    world
}

fn run(world: &World) -> Running {
    world.run(Manager::builder().task("report", |fleet, stop| fleet_report::run(fleet, stop, EVERY)))
}

/// Waits until the report has these parts, in this order of the clusters.
async fn reports(world: &World, eu: &str, us: &str) {
    let what = format!("a report with {eu} and {us}");
    world
        .hub
        .has(&what, |hub| {
            let report = hub.get("configmaps", "default/fleet-report")?;
            let data = report["data"].as_object()?;
            let has = |name: &str, part: &str| data.get(name)?.as_str()?.contains(part).then_some(());
            (data.len() == 2).then_some(())?;
            has("eu", eu).and(has("us", us))
        })
        .await;
}

const COUNTED: &str = "2 nodes, 0 Pods";

/// The provider announces the members late.
#[tokio::test]
async fn report_with_a_slow_hub_names_every_cluster_from_the_first_on() {
    let world = World::start_undiscovered().await;
    let running = run(&world);
    let ready = || world.fleet.get(HUB).is_ok_and(|hub| hub.state().is_ready());
    eventually(PATIENCE, "the hub is Ready", || ready().then_some(())).await;
    // The program could write a report now, and must not, whenever its next tick is.
    tokio::time::sleep(EVERY * 2).await;
    assert_eq!(world.hub.get("configmaps", "default/fleet-report"), None);
    world.discover();
    let first = world
        .hub
        .has("a report", |hub| hub.get("configmaps", "default/fleet-report"))
        .await;
    let names = first["data"].as_object().unwrap().keys();
    assert_eq!(names.collect::<Vec<_>>(), ["eu", "us"]);
    running.stop().await;
}

#[tokio::test]
async fn report_with_a_paused_cluster_names_it_and_counts_the_others() {
    let world = world().await;
    let running = run(&world);
    reports(&world, COUNTED, COUNTED).await;
    world.eu.proxy.set(Fault::Silent).await;
    reports(&world, "missing: ", COUNTED).await;
    world.eu.proxy.clear().await;
    reports(&world, COUNTED, COUNTED).await;
    running.stop().await;
}
