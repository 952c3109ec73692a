//! `secret-sync`.

use mcr::Manager;
use serde_json::{Value, json};

use crate::{
    secret_sync::controller,
    world::{Place, Running, World},
};

fn secret(name: &str, role: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"key": value},
        "metadata": {"name": name, "namespace": "default", "labels": {"example.io/sync": role}},
    })
}

fn run(world: &World) -> Running {
    world.run(Manager::builder().controller(controller()))
}

/// A world with an original and its copies.
async fn synced() -> (World, Running) {
    let world = World::start().await;
    world.hub.put(secret("a", "original", "MQ=="));
    let running = run(&world);
    for place in [&world.eu, &world.us] {
        copy(place, "a", "MQ==").await;
    }
    (world, running)
}

/// Waits for a copy with this value.
async fn copy(place: &Place, name: &str, value: &str) {
    let what = format!("{name} in {}", place.cluster.name());
    place
        .has(&what, |cluster| {
            let found = cluster.get("secrets", &format!("default/{name}"))?;
            let right =
                found["data"]["key"] == value && found["metadata"]["labels"]["example.io/sync"] == "copy";
            right.then_some(())
        })
        .await;
}

fn deletes(place: &Place) -> usize {
    place.cluster.audit().count(|event| event.verb == "delete")
}

/// The copies of the last run are there before the hub has listed its originals.
#[tokio::test]
async fn sync_with_a_slow_hub_deletes_no_copy() {
    let world = World::start().await;
    world.hub.put(secret("a", "original", "Mg=="));
    for place in [&world.eu, &world.us] {
        place.put(secret("a", "copy", "MQ=="));
        place.put(secret("orphan", "copy", "MQ=="));
    }
    world.hub.slow("secrets").await;
    let running = run(&world);
    for place in [&world.eu, &world.us] {
        copy(place, "a", "Mg==").await;
        place.loses("secrets", "default/orphan").await;
        assert_eq!(deletes(place), 1, "only the orphan was deleted");
    }
    // No copy was reconciled before the originals were listed.
    assert_eq!(running.errors(), 0);
    running.stop().await;
}

#[tokio::test]
async fn sync_when_a_label_is_taken_away_deletes_the_copies_it_led_to() {
    let (world, running) = synced().await;
    world.unlabel(&world.eu);
    world.eu.loses("secrets", "default/a").await;
    assert_eq!((deletes(&world.eu), deletes(&world.us)), (1, 0));
    world.label(&world.eu, "prod");
    copy(&world.eu, "a", "MQ==").await;
    // The original exists, but is none any more.
    world.hub.put(json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"key": "MQ=="},
        "metadata": {"name": "a", "namespace": "default"},
    }));
    for place in [&world.eu, &world.us] {
        place.loses("secrets", "default/a").await;
    }
    assert!(world.hub.get("secrets", "default/a").is_some());
    running.stop().await;
}
