//! `published-kinds`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use kube::CustomResourceExt;
use mcr::Manager;
use mcr_testkit::waiting::eventually;
use serde_json::{Value, json};

use crate::{
    published_kinds::{Kinds, PublishedKind},
    world::{PATIENCE, World},
};

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn object(api: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}})
}

fn row(name: &str, group: &str, kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "example.io/v1", "kind": "PublishedKind", "metadata": {"name": name},
        "spec": {"group": group, "version": "v1", "kind": kind, "plural": plural},
    })
}

#[tokio::test]
async fn each_row_of_the_hub_has_a_controller_that_starts_and_stops_with_it() {
    let world = World::start().await;
    world.hub.put(serde_json::to_value(PublishedKind::crd()).unwrap());
    for place in [&world.eu, &world.us] {
        place.put(widgets());
        place.put(object("example.io/v1", "Widget", "a"));
        place.put(object("v1", "ConfigMap", "m"));
    }
    let seen = Arc::<Mutex<BTreeSet<String>>>::default();
    let noted = seen.clone();
    let kinds = Kinds::new(&world.fleet, move |request| {
        let line = format!("{} {}", request.cluster.name(), request.name());
        noted.lock().unwrap().insert(line);
    });
    let running = world.run(kinds.add_to(Manager::builder()).unwrap());
    let sees = async |lines: [&str; 2]| {
        eventually(PATIENCE, format!("{lines:?}"), || {
            let seen = seen.lock().unwrap();
            lines.iter().all(|line| seen.contains(*line)).then_some(())
        })
        .await;
    };
    let watches = async |count: usize| {
        eventually(PATIENCE, format!("{count} watches in eu"), || {
            (world.eu.cluster.watches() == count).then_some(())
        })
        .await;
    };
    world.hub.put(row("first", "example.io", "Widget", "widgets"));
    sees(["eu a", "us a"]).await;
    assert!(
        !seen.lock().unwrap().contains("eu m"),
        "its kind is not published"
    );
    watches(1).await;
    world.hub.put(row("second", "", "ConfigMap", "configmaps"));
    sees(["eu m", "us m"]).await;
    watches(2).await;

    // Another kind in the same row: the controller of the former one is gone.
    world.hub.put(row("second", "", "Secret", "secrets"));
    world.eu.put(object("v1", "Secret", "s"));
    world.us.put(object("v1", "Secret", "s"));
    sees(["eu s", "us s"]).await;
    watches(2).await;
    world
        .hub
        .cluster
        .delete("publishedkinds.example.io", "first")
        .unwrap();
    watches(1).await;
    world.eu.put(object("example.io/v1", "Widget", "late"));
    world.eu.put(object("v1", "Secret", "t"));
    world.us.put(object("v1", "Secret", "t"));
    sees(["eu t", "us t"]).await;
    assert!(!seen.lock().unwrap().contains("eu late"));
    running.stop().await;
    watches(0).await;
}
