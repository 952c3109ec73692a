//! `sync-two-clusters`.

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::Manager;
use serde_json::{Value, json};

use crate::{
    sync_two_clusters::controller,
    world::{Place, Running, World},
};

const DATABASES: &str = "databases.example.io";

/// A world whose clusters serve the kind, with a database `main` in each of the consumers' clusters.
async fn world() -> (World, Running) {
    let world = World::start().await;
    let crd = include_str!("../../examples/database-crd.yaml");
    let crd: Value = serde_saphyr::from_str(crd).unwrap();
    for place in [&world.hub, &world.eu, &world.us] {
        place.put(crd.clone());
    }
    world.eu.put(database(1));
    world.us.put(database(2));
    let running = world.run(Manager::builder().controller(controller().unwrap()));
    (world, running)
}

fn database(replicas: u32) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "Database",
        "metadata": {"name": "main", "namespace": "default"}, "spec": {"profile": "small", "replicas": replicas},
    })
}

/// Waits for the database of a consumer in the service's cluster.
async fn served(world: &World, consumer: &Place, replicas: u32) -> Value {
    let consumer = consumer.cluster.name();
    let what = format!("{replicas} replicas for {consumer}");
    let of_consumer = |found: &Value| {
        found["metadata"]["annotations"]["sync.mcr.dev/source-cluster"] == *consumer
            && found["spec"]["replicas"] == replicas
    };
    world
        .hub
        .has(&what, |hub| {
            hub.list(DATABASES, "databases").into_iter().find(of_consumer)
        })
        .await
}

/// Waits for a phase of a consumer's database.
async fn phase(consumer: &Place, phase: &str) {
    let what = format!("{phase} in {}", consumer.cluster.name());
    let is_reported = |found: Value| (found["status"]["phase"] == phase).then_some(());
    consumer
        .has(&what, |cluster| {
            cluster.get(DATABASES, "default/main").and_then(is_reported)
        })
        .await;
}

/// Sets the status of a database in the service's cluster, as its operator would.
async fn operate(world: &World, served: Value, phase: &str) {
    let database = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Database"));
    let api = Api::<DynamicObject>::namespaced_with(world.hub.cluster.client(), "databases", &database);
    let patch = Patch::Merge(json!({"status": {"phase": phase, "message": "by the operator"}}));
    let name = served["metadata"]["name"].as_str().unwrap();
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn two_clusters_serve_consumers_of_the_same_names_without_a_mix_up() {
    let (world, running) = world().await;
    operate(&world, served(&world, &world.eu, 1).await, "Running").await;
    operate(&world, served(&world, &world.us, 2).await, "Failed").await;
    phase(&world.eu, "Running").await;
    phase(&world.us, "Failed").await;
    world.eu.put(database(3));
    served(&world, &world.eu, 3).await;
    // One consumer has no more need. Its database goes first, and that of the other one stays.
    world.eu.cluster.delete(DATABASES, "default/main").unwrap();
    world.eu.loses(DATABASES, "default/main").await;
    let left = world.hub.cluster.list(DATABASES, "databases");
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(
        (&left[0]["spec"]["replicas"], &left[0]["status"]["phase"]),
        (&json!(2), &json!("Failed"))
    );
    running.stop().await;
}
