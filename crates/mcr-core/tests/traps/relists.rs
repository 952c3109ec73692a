//! What lists and events say that contradicts what is held: versions that are equal or lower, objects that were deleted and
//! created again, and data that was restored from a backup.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{HubEvent, HubWatch, WatchRequest};
use serde_json::Value;

use crate::{
    harness::*,
    server::{Answer, Server, status_object},
};

/// The ConfigMap `a` of one of the objects that had this name, with a text.
fn a(uid: u128, version: u32, text: &str) -> Value {
    let mut object = map("a", version);
    object["metadata"]["uid"] = format!("{uid:032x}").into();
    object["data"] = serde_json::json!({"text": text});
    object
}

fn text(map: &ConfigMap) -> String {
    map.data.clone().unwrap_or_default().remove("text").unwrap()
}

fn gone() -> Answer {
    Answer::short_watch([&event("ERROR", status_object(410, "Expired", "too old"))])
}

/// Version of the second list, its object, and what is reported of it.
type Case = (u32, Value, &'static str);

/// The first list has `a(1, 5, "x")` at version 10, and the watch after it expires.
fn cases() -> Vec<Case> {
    vec![
        (20, a(1, 5, "x"), ""),
        (20, a(1, 5, "shown in another way since an upgrade"), "~"),
        (10, a(1, 5, "shown in another way"), "~"),
        (20, a(1, 6, "changed"), "~"),
        (9, a(1, 4, "restored"), "~"),
        (9, a(2, 5, "created after a restore"), "-+"),
        (20, a(2, 15, "created again"), "-+"),
    ]
}

fn lists_twice((version, object, _): Case) -> Server {
    Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [a(1, 5, "x")]),
        (false, _) => list(version, [object.clone()]),
        (true, 0) => gone(),
        (true, _) => quiet(),
    })
}

#[tokio::test(start_paused = true)]
async fn the_store_equals_the_list_whatever_its_versions_are() {
    for case in cases() {
        let server = lists_twice(case.clone());
        let one = One::of(&server).await;
        eventually("listed twice", || (one.watch.status().lists == 2).then_some(())).await;
        let signs: String = one.log.lines().iter().map(|line| &line[..1]).collect();
        assert_eq!(signs, format!("+{}", case.2), "{case:?}");
        let held = one.cluster.store::<ConfigMap>().unwrap().list().unwrap();
        let held = serde_json::to_value(&*held[0]).unwrap();
        assert_eq!((&held["metadata"], &held["data"]), (&case.1["metadata"], &case.1["data"]));
        one.running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_watch_equals_the_list_whatever_its_versions_are() {
    for case in cases() {
        let server = lists_twice(case.clone());
        let mut hub = HubWatch::new(server.client(), WatchRequest::of::<ConfigMap>());
        let mut next = async || {
            loop {
                match hub.next().await {
                    HubEvent::Applied(_, object) => return text(&object.decode().unwrap()),
                    HubEvent::Synced => return "synced".into(),
                    HubEvent::Failing(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        assert_eq!([next().await, next().await], ["x", "synced"]);
        if !case.2.is_empty() {
            let expected = case.1["data"]["text"].as_str().unwrap();
            let found = tokio::time::timeout(Duration::from_secs(60), next()).await;
            assert_eq!(found.as_deref(), Ok(expected), "{case:?}");
        }
    }
}

/// The second page of the second list is newer than its first page, from which the watch after it begins, so that the watch
/// repeats what happened in between. None of it is reported as a deletion of an object that exists.
#[tokio::test(start_paused = true)]
async fn what_a_watch_repeats_after_pages_of_several_versions_changes_nothing() {
    let repeated = [
        event("DELETED", a(1, 21, "x")),
        event("ADDED", a(2, 22, "in between")),
        event("DELETED", a(2, 23, "in between")),
        event("ADDED", a(3, 24, "older")),
        // It leaves the selector and comes back.
        event("DELETED", a(3, 25, "older")),
        event("ADDED", a(3, 26, "now")),
        event("MODIFIED", map("b", 27)),
    ];
    let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [a(1, 1, "x")]),
        (true, 0) => gone(),
        (false, 1) => page(20, "t", [map("b", 2)]),
        (false, 2) => {
            let mut status = status_object(410, "Expired", "the token is too old");
            status["metadata"] = serde_json::json!({"continue": "n"});
            Answer::new(410, "application/json", status.to_string())
        }
        (false, _) => list(30, [a(3, 26, "now")]),
        (true, 1) => Answer::watch(&repeated),
        (true, _) => quiet(),
    });
    let one = One::of(&server).await;
    one.log.becomes(&["+a", "-a", "+a", "+b", "~b"]).await;
    assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("20"));
    // What comes later is news.
    server.send(MAPS, &event("MODIFIED", a(3, 31, "later"))).await;
    server.send(MAPS, &event("DELETED", a(3, 32, "later"))).await;
    one.log.becomes(&["+a", "-a", "+a", "~a", "-a", "+b", "~b"]).await;
    one.running.stop().await;
}

/// Versions that are no numbers are in no order, so the UID alone tells an older object.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_another_object_of_the_same_name_deletes_nothing() {
    let opaque = |uid, version: &str| {
        let mut object = a(uid, 1, "x");
        object["metadata"]["resourceVersion"] = version.into();
        object
    };
    let events = [
        event("DELETED", opaque(1, "first")),
        event("MODIFIED", opaque(2, "second")),
        event("DELETED", opaque(2, "third")),
    ];
    let server = Server::in_memory(move |asked| match asked.is_watch() {
        false => list(1, [opaque(2, "held")]),
        true => Answer::watch(&events),
    });
    let one = One::of(&server).await;
    one.log.becomes(&["+a", "~a", "-a"]).await;
    one.running.stop().await;
}

/// A server whose data was restored. The first list is `a` and `lost` at version 250; what is listed later is `a` at 205.
async fn notices_a_restore(first_watch: Answer, newest: usize) {
    let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(250, [map("a", 1), map("lost", 240)]),
        (false, _) => list(205, [map("a", 1)]),
        (true, 0) => first_watch.clone(),
        (true, _) => quiet(),
    });
    server.is_at(newest);
    let one = One::of(&server).await;
    one.log.becomes(&["+a", "+lost", "-lost"]).await;
    eventually("watched again", || {
        (server.watches(MAPS).len() == 2).then_some(())
    })
    .await;
    assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("205"));
    // The lower version is the measure from now on.
    server.send(MAPS, &bookmark(206)).await;
    server.send(MAPS, &event("ADDED", map("new", 207))).await;
    one.log.becomes(&["+a", "+lost", "-lost", "+new"]).await;
    assert_eq!(server.lists(MAPS).len(), 2);
    one.running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_of_a_lower_version_leads_to_a_list() {
    notices_a_restore(Answer::watch([&bookmark(251), &bookmark(204)]), 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_lower_version_leads_to_a_list() {
    notices_a_restore(Answer::watch([&event("MODIFIED", map("a", 1))]), 0).await;
}

/// An API server begins a watch from the future without an error, and says nothing until it has passed that version.
#[tokio::test(start_paused = true)]
async fn a_watch_that_broke_off_continues_only_if_the_newest_version_is_not_lower() {
    notices_a_restore(Answer::begin().chunk("{"), 204).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_too_large_leads_to_a_list() {
    let too_large = "Timeout: Too large resource version: 250, current: 204";
    notices_a_restore(Answer::status(504, "Timeout", too_large), 0).await;
}

/// Nothing was restored: the newest version is asked for once, after a failure, and nothing is listed.
#[tokio::test(start_paused = true)]
async fn a_watch_that_broke_off_continues_without_a_list_where_versions_go_on() {
    let server = Server::in_memory(|asked| match (asked.is_watch(), asked.nth) {
        (false, _) => list(250, [map("a", 1)]),
        (true, 0) => Answer::short_watch([&bookmark(251)]),
        (true, 1) => Answer::begin().chunk("{"),
        (true, 2) => Answer::short_watch([&event("ADDED", map("b", 252))]),
        (true, _) => quiet(),
    });
    server.is_at(251);
    let one = One::of(&server).await;
    one.log.becomes(&["+a", "+b"]).await;
    eventually("watched", || (server.watches(MAPS).len() == 4).then_some(())).await;
    assert_eq!((server.lists(MAPS).len(), server.checks()), (1, 1));
    one.running.stop().await;
}

/// There are aggregated API servers whose versions are numbers in no order.
#[tokio::test(start_paused = true)]
async fn versions_in_no_order_cost_few_lists() {
    let server = Server::in_memory(|asked| match asked.is_watch() {
        false => list(1000, [map("a", 1)]),
        true => Answer::watch([&event("MODIFIED", map("a", 999 - asked.nth as u32))]),
    });
    let one = One::of(&server).await;
    for_millis(600_000).await;
    assert_eq!(server.lists(MAPS).len(), 4);
    one.running.stop().await;
}
