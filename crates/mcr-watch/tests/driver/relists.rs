//! What lists and events bring that contradicts what is held: versions that are equal or lower, objects that were deleted and
//! created again, and data that was restored from a backup.

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_watch::{HubEvent, HubWatch, WatchRequest};
use serde_json::{Value, json};

use mcr_doubles::{
    scripted::{Answer, Server},
    status_object,
};

use crate::harness::*;

/// The ConfigMap `a` of one of the objects that had this name, with a text.
fn a(uid: u128, version: u32, text: &str) -> Value {
    let mut object = map("a", version);
    object["metadata"]["uid"] = format!("{uid:032x}").into();
    object["data"] = json!({"text": text});
    object
}

fn gone() -> Answer {
    Answer::short_watch([&event("ERROR", status_object(410, "Expired", "too old"))])
}

#[tokio::test(start_paused = true)]
async fn stores_and_hub_watches_equal_the_list_whatever_its_versions_are() {
    for (version, object, reported) in [
        (20, a(1, 5, "x"), ""),
        (20, a(1, 5, "shown in another way since an upgrade"), "~"),
        (10, a(1, 5, "shown in another way"), "~"),
        (20, a(1, 6, "changed"), "~"),
        (9, a(1, 4, "restored"), "~"),
        (9, a(2, 5, "created after a restore"), "-+"),
        (20, a(2, 15, "created again"), "-+"),
    ] {
        let listed = object.clone();
        let script = move |asked: &mcr_doubles::scripted::Asked| match (asked.is_watch(), asked.nth) {
            (false, 0) => list(10, [a(1, 5, "x")]),
            (false, _) => list(version, [listed.clone()]),
            (true, 0) => gone(),
            (true, _) => quiet(),
        };
        let (_server, one) = One::on(script.clone());
        one.listed(2).await;
        let signs: String = one.log.lines().iter().map(|line| &line[..1]).collect();
        assert_eq!(signs, format!("+{reported}"), "{object}");
        let held = one.cluster.store::<ConfigMap>().unwrap().list().unwrap();
        let held = serde_json::to_value(&*held[0]).unwrap();
        let content = |of: &Value| (of["metadata"].clone(), of["data"].clone());
        assert_eq!(content(&held), content(&object));

        let server = Server::in_memory(script);
        let mut hub = HubWatch::new(server.client(), WatchRequest::of::<ConfigMap>());
        let mut applied = Vec::new();
        while applied.len() < 1 + usize::from(!reported.is_empty()) {
            if let HubEvent::Applied(_, object) = hub.next().await {
                applied.push(serde_json::from_slice::<Value>(&object.to_json()).unwrap());
            }
        }
        assert_eq!(content(applied.last().unwrap()), content(&object));
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
    let (server, one) = One::on(move |asked| match (asked.is_watch(), asked.nth) {
        (false, 0) => list(10, [a(1, 1, "x")]),
        (true, 0) => gone(),
        (false, 1) => page(20, "t", [map("b", 2)]),
        (false, 2) => expired("n"),
        (false, _) => list(30, [a(3, 26, "now")]),
        (true, 1) => Answer::watch(&repeated),
        (true, _) => quiet(),
    });
    one.log.becomes(&["+a", "-a", "+a", "+b", "~b"]).await;
    assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("20"));
    // What comes later is news.
    server.send(MAPS, &event("MODIFIED", a(3, 31, "later"))).await;
    server.send(MAPS, &event("DELETED", a(3, 32, "later"))).await;
    one.log.becomes(&["+a", "-a", "+a", "~a", "-a", "+b", "~b"]).await;
}

/// The first list is `a` and `lost` at version 250, what is listed later is `a` at 205. The newest version is 204.
#[tokio::test(start_paused = true)]
async fn a_version_that_goes_back_leads_to_one_list_however_it_shows() {
    for first_watch in [
        Answer::watch([&bookmark(251), &bookmark(204)]),
        Answer::watch([&event("MODIFIED", map("a", 1))]),
        Answer::watch([&event("DELETED", map("gone", 204))]),
        Answer::status(504, "Timeout", "Too large resource version: 250, current: 204"),
        // A watch from the future begins without an error, and reports nothing until versions have passed it. So after a failure
        // the newest version is asked for.
        Answer::begin().chunk("{"),
        Answer::status(500, "InternalError", "etcd is away"),
    ] {
        let server = Server::in_memory(move |asked| match (asked.is_watch(), asked.nth) {
            (false, 0) => list(250, [map("a", 1), map("lost", 240)]),
            (false, _) => list(205, [map("a", 1)]),
            (true, 0) => first_watch.clone(),
            (true, _) => quiet(),
        });
        server.set_newest_version(204);
        let one = One::of(&server);
        one.log.becomes(&["+a", "+lost", "-lost"]).await;
        eventually("watched", || server.watches(MAPS).len() == 2).await;
        assert_eq!(server.watches(MAPS)[1].get("resourceVersion"), Some("205"));
        // The lower version is the measure from now on.
        server.send(MAPS, &bookmark(206)).await;
        server.send(MAPS, &event("ADDED", map("new", 207))).await;
        one.log.becomes(&["+a", "+lost", "-lost", "+new"]).await;
        assert_eq!(server.lists(MAPS).len(), 2);
    }
}
