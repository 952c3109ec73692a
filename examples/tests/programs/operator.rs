//! `database-operator`.

use std::path::Path;

use kube::CustomResourceExt;
use mcr::Manager;
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};

use crate::{
    database_operator::{Database, controller},
    world::{Place, Running, World},
};

const DATABASES: &str = "databases.example.io";
const SETS: &str = "statefulsets.apps";

fn crd() -> Value {
    let mut crd = serde_json::to_value(Database::crd()).unwrap();
    crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
    crd["kind"] = "CustomResourceDefinition".into();
    crd
}

fn database(name: &str) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Database",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"profile": "small", "replicas": 0},
    })
}

fn profile(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"image": image},
        "metadata": {"name": "small", "namespace": "profiles", "labels": {"example.io/profile": "database"}},
    })
}

/// A world with a profile in the hub, and a database in each member.
async fn world() -> World {
    let world = World::start().await;
    world
        .hub
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "profiles"}}));
    world.hub.put(profile("db:1"));
    for place in [&world.eu, &world.us] {
        place.put(crd());
        place.put(database("main"));
    }
    world
}

fn run(world: &World) -> Running {
    world.run(Manager::builder().controller(controller(&world.fleet)))
}

/// A world whose databases are Ready.
async fn ready() -> (World, Running) {
    let world = world().await;
    let running = run(&world);
    for place in [&world.eu, &world.us] {
        is(place, "main", "Ready").await;
        runs(place, "main", "db:1").await;
    }
    (world, running)
}

/// Waits for the phase of a database.
async fn is(place: &Place, name: &str, phase: &str) {
    let what = format!("{name} in {} is {phase}", place.cluster.name());
    let key = format!("default/{name}");
    let phase_of = |cluster: &SimCluster| Some(cluster.get(DATABASES, &key)?["status"]["phase"] == phase);
    place.has(&what, |cluster| phase_of(cluster)?.then_some(())).await;
}

fn deletes(place: &Place) -> usize {
    place.cluster.audit().count(|event| event.verb == "delete")
}

/// Waits for a StatefulSet with an image.
async fn runs(place: &Place, name: &str, image: &str) {
    let what = format!("{name} in {} runs {image}", place.cluster.name());
    place
        .has(&what, |cluster| {
            let set = cluster.get(SETS, &format!("default/{name}"))?;
            let found = &set["spec"]["template"]["spec"]["containers"][0]["image"];
            (found == image).then_some(())
        })
        .await;
}

/// The reasons of the events about databases.
fn events(place: &Place) -> Vec<String> {
    let events = place.cluster.list("events.events.k8s.io", "default");
    let reasons = events.iter().filter_map(|event| event["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

/// With `MCR_UPDATE_SNAPSHOTS=1` writes the manifest instead of comparing it.
#[test]
fn the_manifest_of_the_crd_is_that_of_the_type() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/database-crd.yaml");
    let yaml = serde_saphyr::to_string(&crd()).unwrap();
    if std::env::var_os("MCR_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &yaml).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        yaml,
        "update it with MCR_UPDATE_SNAPSHOTS=1"
    );
}

#[tokio::test]
async fn operator_keeps_databases_from_creation_to_deletion() {
    let (world, running) = ready().await;
    assert_eq!(events(&world.eu), ["Ready"]);
    let map = world.eu.get("configmaps", "default/main").unwrap();
    assert_eq!(map["data"], json!({"cluster": "eu", "profile": "small"}));
    assert_eq!(map["metadata"]["ownerReferences"][0]["kind"], "Database");
    // A change of the profile reaches the databases of all clusters.
    world.hub.put(profile("db:2"));
    for place in [&world.eu, &world.us] {
        runs(place, "main", "db:2").await;
    }
    world.eu.cluster.delete(DATABASES, "default/main").unwrap();
    world.eu.loses(DATABASES, "default/main").await;
    assert!(events(&world.eu).contains(&"Released".to_owned()));
    running.stop().await;
}

#[tokio::test]
async fn operator_with_a_slow_hub_reports_no_missing_profile() {
    let world = world().await;
    world.hub.slow("configmaps").await;
    let running = run(&world);
    for place in [&world.eu, &world.us] {
        is(place, "main", "Ready").await;
        assert_eq!(events(place), ["Ready"]);
    }
    // No database was reconciled before the profiles were listed.
    assert_eq!(running.errors(), 0);
    running.stop().await;
}

/// A profile without its label is no profile. What runs goes on running.
#[tokio::test]
async fn operator_when_the_label_of_a_profile_is_taken_away_waits_and_tears_nothing_down() {
    let (world, running) = ready().await;
    let mut unlabelled = profile("db:2");
    unlabelled["metadata"]["labels"] = json!({});
    world.hub.put(unlabelled);
    for place in [&world.eu, &world.us] {
        is(place, "main", "Waiting").await;
        runs(place, "main", "db:1").await;
        assert_eq!(deletes(place), 0);
    }
    world.hub.put(profile("db:2"));
    for place in [&world.eu, &world.us] {
        is(place, "main", "Ready").await;
        runs(place, "main", "db:2").await;
    }
    running.stop().await;
}

/// On the simulator, which ends the watches of a removed kind and answers 404 as an API server does.
#[tokio::test]
async fn operator_without_its_crd_in_a_cluster_goes_on_elsewhere_and_comes_back_with_it() {
    let (world, running) = ready().await;
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    world.eu.cluster.delete(crds, DATABASES).unwrap();
    world.blocked(&world.eu).await;
    world.hub.put(profile("db:2"));
    runs(&world.us, "main", "db:2").await;
    world.eu.put(crd());
    // `second` is known only from the watch, which nothing but a list of its own brings back.
    for name in ["main", "second"] {
        world.eu.put(database(name));
        runs(&world.eu, name, "db:2").await;
        is(&world.eu, name, "Ready").await;
    }
    running.recovers(&world.eu).await;
    assert_eq!(deletes(&world.us), 0);
    running.stop().await;
}
