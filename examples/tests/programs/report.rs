//! `fleet-report`.

use std::time::Duration;

use mcr::{HUB, Manager, ManagerError};
use mcr_testkit::{
    faults::{Fault, Match},
    sim::SimRule,
    waiting::{Background, eventually},
};
use serde_json::json;

use crate::{
    fleet_report,
    world::{PATIENCE, World},
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

fn run(world: &World) -> Background<Result<(), ManagerError>> {
    world.run(Manager::builder().task("report", |fleet, stop| fleet_report::run(fleet, stop, EVERY)))
}

/// Waits until the report has these parts: of clusters that are counted, and of those that are missing.
async fn reports(world: &World, counted: &[&str], missing: &[&str]) {
    let what = format!("{counted:?} counted and {missing:?} missing");
    world
        .hub
        .has(&what, |hub| {
            let report = hub.get("configmaps", "default/fleet-report")?;
            let has = |key: &str, parts: &[&str]| {
                let text = report["data"][key].as_str().unwrap_or_default();
                parts.iter().all(|part| text.contains(part)) && text.lines().count() == parts.len()
            };
            (has("counted", counted) && has("missing", missing)).then_some(())
        })
        .await;
}

const EU: &str = "eu: 2 nodes, 0 Pods";
const US: &str = "us: 2 nodes, 0 Pods";

/// The hub says late which members there are.
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
    let text = first["data"].to_string();
    assert!(text.contains("eu: ") && text.contains("us: "), "{text}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn report_when_the_label_of_a_cluster_is_taken_away_still_counts_it() {
    let world = world().await;
    let running = run(&world);
    reports(&world, &[EU, US], &[]).await;
    world.unlabel(&world.eu);
    world
        .us
        .put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "three"}}));
    reports(&world, &[EU, "us: 3 nodes"], &[]).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn report_with_a_paused_cluster_names_it_and_counts_the_others() {
    let world = world().await;
    let running = run(&world);
    reports(&world, &[EU, US], &[]).await;
    world.eu.proxy.set(Fault::Silent).await;
    reports(&world, &[US], &["eu: "]).await;
    world.eu.proxy.clear().await;
    reports(&world, &[EU, US], &[]).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn report_without_rights_in_a_cluster_names_it_and_counts_the_others() {
    let world = world().await;
    let running = run(&world);
    reports(&world, &[EU, US], &[]).await;
    world
        .eu
        .rights([SimRule::new(["*"], ["nodes", "namespaces"], ["*"])]);
    reports(&world, &[US], &["forbidden"]).await;
    world.eu.rights([SimRule::all()]);
    reports(&world, &[EU, US], &[]).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn report_without_the_kind_in_a_cluster_names_it_and_counts_the_others() {
    let world = world().await;
    let running = run(&world);
    reports(&world, &[EU, US], &[]).await;
    world
        .eu
        .proxy
        .set(Fault::NotFound.on(Match::any().resource("nodes")))
        .await;
    reports(&world, &[US], &["eu: "]).await;
    world.eu.proxy.clear().await;
    reports(&world, &[EU, US], &[]).await;
    running.stop().await.unwrap();
}
