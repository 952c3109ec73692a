//! What an object costs: memory held for each byte of its JSON, and time to read and to write it.
//!
//! By itself in its process, for the allocator counts what all of it allocates. Figures:
//!
//! ```text
//! cargo test --release -p mcr-store --test cost -- --nocapture
//! ```

#![allow(clippy::unwrap_used)]

mod objects;

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube_core::DynamicObject;
use mcr_store::{
    Encoder, Encoding, Item, Object, ObjectStore, TemplateRegistry, WatchEvent, parse_event, parse_list,
};
use objects::Kind;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Fewer where everything takes long.
const CLUSTERS: usize = if cfg!(debug_assertions) { 4 } else { 100 };

/// How many objects of each kind a cluster has.
const OBJECTS: usize = 100;

/// Times have a meaning for optimised programs only.
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 61 };

/// The targets of the project: see docs/design/store.md.
const MOST_HELD: f64 = 0.8;

/// An object as lists have it: those of kinds that are built in without their type.
fn item(kind: Kind, cluster: usize, number: usize) -> Value {
    let mut item = kind.object(cluster, number);
    let fields = item.as_object_mut().unwrap();
    if kind != Kind::Certificate {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    item
}

/// How long the JSON of all objects is, without `managedFields`.
fn json_bytes(kind: Kind) -> usize {
    let each = (0..CLUSTERS).flat_map(|cluster| (0..OBJECTS).map(move |number| kind.object(cluster, number)));
    each.map(|mut object| {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        object.to_string().len()
    })
    .sum()
}

fn put(store: &ObjectStore, item: Item<'_>, encoder: &mut Encoder) {
    let object = item.and_then(|object| object.encode(None, encoder)).unwrap();
    drop(store.upsert(Arc::new(object), false));
}

/// The store of each cluster. All share the templates of the kind.
fn listed(kind: Kind, templates: &Arc<TemplateRegistry>) -> Vec<ObjectStore> {
    let list = |cluster: usize| {
        let items: Vec<Value> = (0..OBJECTS).map(|number| item(kind, cluster, number)).collect();
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        let (store, mut encoder) = (ObjectStore::default(), Encoder::with_templates(templates.clone()));
        for item in parse_list(list.as_bytes()).unwrap().items.iter() {
            put(&store, item, &mut encoder);
        }
        store
    };
    (0..CLUSTERS).map(list).collect()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn decode(kind: Kind, object: &Object) {
    match kind {
        Kind::SmallConfigMap | Kind::ConfigMap => drop(object.decode::<ConfigMap>().unwrap()),
        Kind::Pod => drop(object.decode::<Pod>().unwrap()),
        Kind::Deployment => drop(object.decode::<Deployment>().unwrap()),
        Kind::Certificate => drop(object.decode::<DynamicObject>().unwrap()),
    }
}

/// Nanoseconds for each of the objects.
fn reading(kind: Kind, objects: &[Arc<Object>]) -> f64 {
    let began = Instant::now();
    objects.iter().for_each(|object| decode(kind, object));
    began.elapsed().as_nanos() as f64 / objects.len() as f64
}

/// Nanoseconds for each object that a watch reports, from the bytes of its event to the store.
fn writing(kind: Kind, store: &ObjectStore, encoder: &mut Encoder, round: usize) -> f64 {
    let event = |number: usize| {
        let mut object = item(kind, 0, number);
        let version = (round + 1) * 1_000_000_000 + number;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        json!({"type": "MODIFIED", "object": object}).to_string()
    };
    let events: Vec<String> = (0..OBJECTS).map(event).collect();
    let began = Instant::now();
    for event in &events {
        match parse_event(event.as_bytes()).unwrap() {
            WatchEvent::Put(event) => put(store, event.item(), encoder),
            _ => unreachable!("all are modified"),
        }
    }
    began.elapsed().as_nanos() as f64 / OBJECTS as f64
}

#[test]
fn what_is_held_of_an_object_is_less_than_its_json() {
    for kind in Kind::ALL {
        let json = json_bytes(kind);
        // What is allocated once and stays.
        let (version, name, _) = kind.of();
        let templates = || Arc::new(TemplateRegistry::new(Encoding::new(version, name)));
        drop(listed(kind, &templates()));
        let templates = templates();
        let before = MEMORY.current_usage();
        let stores = listed(kind, &templates);
        let held = MEMORY.current_usage() - before;
        let mut encoder = Encoder::with_templates(templates);
        let objects: Vec<_> = stores
            .iter()
            .step_by(CLUSTERS / 4)
            .flat_map(ObjectStore::all)
            .collect();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (round, some) in objects.chunks(20).cycle().take(ROUNDS).enumerate() {
            reads.push(reading(kind, some));
            writes.push(writing(kind, &stores[0], &mut encoder, round));
        }
        let (count, ratio) = (CLUSTERS * OBJECTS, held as f64 / json as f64);
        println!(
            "{kind:?}: {} bytes of JSON, {} held, {ratio:.2}x; {:.0} ns to read, {:.0} ns to write",
            json / count,
            held / count,
            median(reads),
            median(writes),
        );
        assert!(ratio <= MOST_HELD, "{kind:?}: {ratio:.2}x");
    }
}
