use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::*;
use serde_json::{json, value::to_raw_value};

use super::*;
use crate::codec::{Encoder, Encoding};

/// A version of 0 is not a number.
fn object(name: &str, uid: u8, rv: u32, label: &str) -> Arc<Object> {
    let rv = if rv == 0 { "opaque".into() } else { rv.to_string() };
    let json = json!({"metadata": {"name": name, "namespace": "n", "uid": format!("{uid:032x}"), "resourceVersion": rv, "labels": {"l": label, "app.kubernetes.io/managed-by": "the same in all objects"}}});
    let raw = to_raw_value(&json).unwrap();
    Object::parse(&raw, &mut Encoder::plain(Encoding::new("v1", "ConfigMap")))
        .unwrap()
        .into()
}

fn by_label() -> Indexer {
    Arc::new(|object| {
        let map: k8s_openapi::api::core::v1::ConfigMap = object.decode().ok()?;
        Some(
            map.metadata
                .labels
                .unwrap_or_default()
                .remove("l")
                .into_iter()
                .collect(),
        )
    })
}

#[test]
fn an_incomplete_list_deletes_nothing_and_an_unreadable_object_is_kept() {
    let store = ObjectStore::default();
    store.upsert(object("a", 1, 1, "x"), true);
    store.upsert(object("b", 2, 2, "x"), true);
    store.begin_listing();
    assert!(store.finish_listing(false).is_empty());
    store.begin_listing();
    store.mark_listed(&ObjectKey::namespaced("n", "a"));
    assert_eq!(store.finish_listing(true).len(), 1);
    assert_eq!(store.len(), 1);
}

#[test]
fn the_unlisted_objects_of_a_list_are_those_that_the_store_still_holds() {
    let store = ObjectStore::default();
    for (name, uid) in [("a", 1), ("b", 2), ("c", 3)] {
        store.upsert(object(name, uid, 1, "x"), true);
    }
    store.begin_listing();
    store.upsert(object("a", 1, 1, "x"), true);
    store.delete(object("b", 2, 2, "x"));
    let unlisted: Vec<String> = store
        .take_unlisted()
        .iter()
        .map(|o| o.key().to_string())
        .collect();
    assert_eq!(unlisted, ["n/c"]);
    assert_eq!(store.len(), 2);
    assert!(store.finish_listing(true).is_empty(), "the listing has ended");
}

#[test]
fn an_index_that_comes_late_finds_what_is_there() {
    let store = ObjectStore::default();
    store.upsert(object("a", 1, 1, "x"), true);
    assert!(store.by_index("label", "x").is_none());
    store.add_index("label".into(), by_label());
    assert_eq!(store.by_index("label", "x").unwrap().len(), 1);
    assert!(store.by_index("label", "y").unwrap().is_empty());
}

#[test]
fn an_indexer_runs_once_for_each_version_and_may_read_the_store() {
    let store = Arc::new(ObjectStore::default());
    let runs = Arc::new(AtomicUsize::new(0));
    let indexer: Indexer = Arc::new({
        let (store, runs) = (Arc::downgrade(&store), runs.clone());
        move |object| {
            runs.fetch_add(1, Ordering::Relaxed);
            let others = store.upgrade()?.len();
            Some(vec![others.to_string(), object.key().name.to_string()])
        }
    });
    store.upsert(object("a", 1, 1, "x"), true);
    store.add_index("i".into(), indexer);
    let runs = || runs.swap(0, Ordering::Relaxed);
    assert_eq!(runs(), 1);
    store.upsert(object("b", 1, 1, "x"), false);
    store.upsert(object("a", 1, 2, "y"), false);
    assert_eq!(runs(), 2);
    // A list brings the versions that the store holds, and their values stay.
    store.begin_listing();
    store.upsert(object("a", 1, 2, "y"), true);
    assert_eq!(store.by_index("i", "a").unwrap().len(), 1);
    store.finish_listing(true);
    assert_eq!(runs(), 0);
    assert!(store.by_index("i", "b").unwrap().is_empty());
    // The values of the version that was replaced are gone.
    assert!(store.by_index("i", "1").unwrap().is_empty());
    assert_eq!(store.by_index("i", "2").unwrap().len(), 1);
}

#[derive(Debug, Clone)]
enum Op {
    Upsert(Item),
    Delete(Item),
    Relist(Vec<Item>),
}

/// Name, UID, resource version and label. Versions repeat and go back, as after upgrades and restores.
type Item = (u8, u8, u32, u8);

fn op() -> impl Strategy<Value = Op> {
    let item = || (0..5u8, 0..3u8, 0..4u32, 0..3u8);
    prop_oneof![
        item().prop_map(Op::Upsert),
        item().prop_map(Op::Delete),
        proptest::collection::vec(item(), 0..6).prop_map(Op::Relist),
    ]
}

proptest! {
    #[test]
    fn the_store_equals_a_map(ops in proptest::collection::vec(op(), 1..40)) {
        equals_a_map(ops)?;
    }
}

/// Checks the store, its indexes, its byte counts and its changes against a plain map.
fn equals_a_map(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let store = ObjectStore::default();
    store.add_index("label".into(), by_label());
    let mut model = BTreeMap::<String, (u8, u32, u8)>::new();
    let mut replayed = BTreeMap::<String, Vec<u8>>::new();
    let encoded = |(n, u, rv, l): Item| object(&n.to_string(), u, rv, &l.to_string());
    for op in ops {
        let mut changes = Vec::new();
        match op {
            Op::Upsert(item @ (n, u, rv, l)) => {
                model.insert(n.to_string(), (u, rv, l));
                changes.extend(store.upsert(encoded(item), false));
            }
            Op::Delete(item @ (n, u, rv, _)) => {
                let held = model.get(&n.to_string());
                let goes = held.is_some_and(|held| held.0 == u || (0 < held.1 && held.1 < rv));
                if goes {
                    model.remove(&n.to_string());
                }
                let change = store.delete(encoded(item));
                prop_assert_eq!(change.is_some(), goes);
                changes.extend(change);
            }
            Op::Relist(items) => {
                model.clear();
                store.begin_listing();
                for item @ (n, u, rv, l) in items {
                    model.insert(n.to_string(), (u, rv, l));
                    changes.extend(store.upsert(encoded(item), true));
                }
                changes.extend(store.finish_listing(true));
            }
        }
        for change in changes {
            let name = change.key().unwrap().name.to_string();
            match &change.new {
                Some(new) => {
                    let before = replayed.insert(name, new.to_json());
                    prop_assert_eq!(change.old.map(|old| old.to_json()), before.clone());
                    prop_assert_ne!(before, Some(new.to_json()), "no change");
                }
                None => prop_assert!(replayed.remove(&name).is_some()),
            }
        }
        let expected: BTreeMap<String, Vec<u8>> = model
            .iter()
            .map(|(n, (u, rv, l))| (n.clone(), object(n, *u, *rv, &l.to_string()).to_json()))
            .collect();
        let held = store.all().into_iter();
        let held: BTreeMap<String, Vec<u8>> = held.map(|o| (o.key().name.to_string(), o.to_json())).collect();
        prop_assert_eq!(&held, &expected);
        prop_assert_eq!(&replayed, &expected);
        let sum = |of: fn(&Object) -> usize| store.all().iter().map(|object| of(object)).sum::<usize>();
        prop_assert_eq!(store.bytes(), sum(Object::bytes));
        prop_assert_eq!(store.held_bytes(), sum(Object::held_bytes));
        for label in 0..3u8 {
            let found = store.by_index("label", &label.to_string()).unwrap();
            let found: BTreeSet<String> = found.iter().map(|o| o.key().name.to_string()).collect();
            let expected = model.iter().filter(|(_, (_, _, l))| *l == label);
            prop_assert_eq!(found, expected.map(|(n, _)| n.clone()).collect());
        }
    }
    Ok(())
}
