//! Objects that can't be read: each is left out by itself, and nothing is deleted for it.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_store::ObjectKey;
use mcr_watch::StoreError;
use serde_json::json;

use mcr_doubles::{scripted::Server, status_object};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn one_object_of_a_list_that_cannot_be_read_hides_no_other() {
    let bad =
        json!({"metadata": {"name": "unreadable-in-list", "namespace": "default", "resourceVersion": 7}});
    let again = bad.clone();
    let (_server, one) = One::on(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1), map("unreadable-in-list", 2), map("gone", 3)]),
        (false, 1 | 2) => list(20, [map("a", 1), again.clone(), map("b", 4)]),
        (false, _) => list(30, [map("a", 1), map("unreadable-in-list", 9), map("b", 4)]),
        (true, 0..3) => too_old(),
        (true, _) => quiet(),
    });
    let name = "unreadable-in-list";
    let lines = [
        "+a",
        &format!("+{name}"),
        "+gone",
        "+b",
        "-gone",
        &format!("~{name}"),
    ];
    one.log.becomes(&lines).await;
    assert_eq!(one.watch.status().skipped, 2, "each time it was left out counts");
    assert_eq!(one.cluster.watches.kinds()[0].skipped, 2);
}

/// If not even its name can be read, it could be any of those that are missing from the list.
#[tokio::test(start_paused = true)]
async fn a_list_with_an_object_without_a_name_deletes_nothing() {
    let (server, one) = One::on(|asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [map("a", 1), map("b", 2)]),
        (false, 1) => list(
            20,
            [
                map("a", 1),
                json!({"metadata": {"name": null}}),
                json!("?"),
                map("c", 3),
            ],
        ),
        (false, _) => list(30, [map("a", 1), map("c", 3)]),
        (true, 0) => too_old(),
        (true, _) => quiet(),
    });
    one.log.becomes(&["+a", "+b", "+c"]).await;
    eventually("watched again", || server.live() == 1).await;
    assert_eq!((one.watch.status().skipped, one.watch.status().lists), (2, 2));
    server
        .send(MAPS, &event("ERROR", status_object(410, "Expired", "too old")))
        .await;
    one.log.becomes(&["+a", "+b", "+c", "-b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_object_cannot_be_read_is_left_out_and_the_watch_goes_on() {
    let (server, one) = One::on(lists(|_| list(10, [map("a", 1), map("b", 2)])));
    eventually("watched", || server.live() == 1).await;
    let mut bad = map("a", 11);
    bad["metadata"]["uid"] = json!({"not": "text"});
    server.send(MAPS, &event("MODIFIED", bad)).await;
    server.send(MAPS, &event("ADDED", json!(["no", "object"]))).await;
    server.send(MAPS, &event("MODIFIED", map("b", 12))).await;
    one.log.becomes(&["+a", "+b", "~b"]).await;
    assert_eq!(one.watch.status().skipped, 2);
    let store = one.cluster.store::<ConfigMap>().unwrap();
    let held = store
        .raw(&ObjectKey::namespaced("default", "a"))
        .unwrap()
        .expect("the old version is kept");
    assert_eq!(held.resource_version(), "1");
    assert_eq!((server.lists(MAPS).len(), server.watches(MAPS).len()), (1, 1));
}

/// kube fails the whole list of a kind if one object of it does not decode.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_of_its_rust_type_is_distinguished_from_one_that_is_not_there() {
    let server = Server::in_memory(|asked| {
        let mut odd = map("odd", 2);
        odd["data"] = json!("canary-odd");
        if asked.is_watch() {
            quiet()
        } else {
            list(10, [map("a", 1), odd])
        }
    });
    let one = One::of(&server);
    one.log.becomes(&["+a", "+odd"]).await;
    synced(&one.watch).await;
    let store = one.cluster.store::<ConfigMap>().unwrap();
    let error = store.get(&ObjectKey::namespaced("default", "odd")).unwrap_err();
    assert!(matches!(error, StoreError::Decode { .. }));
    let text = error.to_string();
    assert!(
        text.contains("object default/odd can't be decoded as ConfigMap"),
        "{text}"
    );
    assert!(
        store
            .get(&ObjectKey::namespaced("default", "none"))
            .unwrap()
            .is_none()
    );
    // `get_in` looks in its namespace only.
    assert!(store.get_in("default", "a").unwrap().is_some());
    assert!(store.get_in("other", "a").unwrap().is_none());
    assert!(matches!(
        store.get_in("default", "odd"),
        Err(StoreError::Decode { .. })
    ));
    let names: Vec<_> = store
        .list()
        .unwrap()
        .iter()
        .map(|map| map.metadata.name.clone().unwrap())
        .collect();
    assert_eq!((names, store.len().unwrap()), (vec!["a".to_owned()], 2));
    assert_eq!(
        one.watch.status().skipped,
        0,
        "the store holds it; only this type does not fit"
    );
    assert!(!format!("{error:?} {text}").contains("canary-odd"));
}
