//! The memory that lists may take together while they are read.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_watch::{WatchHandle, WatchRequest, WatchSettings};
use serde_json::{Value, json};
use tokio::time::Instant;

use mcr_doubles::scripted::{Answer, Server};

use crate::harness::*;

const MIB: usize = 1 << 20;

/// The lists of the fleet may take so much. Each begins with 1 MiB.
fn fleet_lists(bytes: usize) -> impl FnOnce(&mut WatchSettings) {
    move |settings| settings.fleet_list_bytes = bytes
}

/// An answer that comes at once but for its end, and then a blank every 20 seconds. It ends after 160 seconds.
fn slow(body: &Value) -> Answer {
    let whole = body.to_string();
    let (first, last) = whole.split_at(whole.len() - 3);
    let blanks = (0..8).fold(Answer::begin().chunk(first), |answer, _| {
        answer.wait(Duration::from_secs(20)).chunk(" ")
    });
    blanks.chunk(last).end()
}

/// Follows Secrets until their list is being read, and ConfigMaps after that.
async fn secrets_then_maps(server: &Server, cluster: &Cluster) -> (WatchHandle, WatchHandle, Arc<Log>) {
    let (secrets, _) = cluster.follow(WatchRequest::of::<Secret>());
    eventually("Secrets are being listed", || server.lists(SECRETS).len() == 1).await;
    for_millis(1_000).await;
    let (maps, log) = cluster.follow(WatchRequest::of::<ConfigMap>());
    (secrets, maps, log)
}

/// Each attempt would transfer all of it again, for nothing.
#[tokio::test(start_paused = true)]
async fn a_list_that_needs_more_than_is_left_waits_until_there_is_enough() {
    let server = Server::in_memory(|asked| match (asked.path.as_str(), asked.is_watch()) {
        // One object, so that its bytes wait in the buffer.
        (SECRETS, false) => slow(&list_object(10, [large_map("slow", 1, 11 * MIB / 5)])),
        (_, false) => list(10, [large_map("a", 1, 11 * MIB / 5)]),
        (_, true) => quiet(),
    });
    // Half of it for one cluster.
    let cluster = Cluster::with(&server, fleet_lists(8 * MIB));
    let (secrets, maps, log) = secrets_then_maps(&server, &cluster).await;
    let problem = problem(&log).await;
    assert!(problem.contains("WatchSettings::fleet_list_bytes"), "{problem}");
    for_millis(100_000).await;
    assert_eq!(server.lists(MAPS).len(), 1);
    assert!(!maps.status().synced);
    within(Duration::from_secs(600), "all is listed", || {
        secrets.status().synced && maps.status().synced
    })
    .await;
    assert_eq!(server.lists(MAPS).len(), 2);
}

/// Pages that have arrived keep their memory. The rest goes to others.
#[tokio::test(start_paused = true)]
async fn a_list_that_pauses_between_pages_keeps_nobody_waiting() {
    let server = Server::in_memory(|asked| match (asked.path.as_str(), asked.is_watch(), asked.nth) {
        (SECRETS, false, 0) => page(10, "t", [map("a", 1)]),
        (SECRETS, false, 1) => busy(),
        (_, false, _) => list(10, [map("b", 1)]),
        (_, true, _) => quiet(),
    });
    // Room for one list that begins, beside a page that is kept.
    let cluster = Cluster::with(&server, fleet_lists(3 * MIB / 2));
    let (secrets, log) = cluster.follow(WatchRequest::of::<Secret>());
    let problem = problem(&log).await;
    assert!(problem.contains("503"), "{problem}");
    let (maps, _) = cluster.follow(WatchRequest::of::<ConfigMap>());
    let began = Instant::now();
    synced(&maps).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    within(Duration::from_secs(120), "Secrets are listed", || {
        secrets.status().synced
    })
    .await;
    log.becomes(&["+a", "+b"]).await;
}

/// A list takes the memory of one part of its body and of its objects, not of its body.
#[tokio::test(start_paused = true)]
async fn a_body_may_be_larger_than_what_a_list_may_take() {
    let server = Server::in_memory(|asked| {
        // Objects are kept without their managed fields.
        let object = |name: usize| {
            let mut object = map(&name.to_string(), 1);
            object["metadata"]["managedFields"] = json!([{"manager": "x".repeat(MIB / 4)}]);
            object
        };
        if asked.is_watch() {
            quiet()
        } else {
            list(10, (0..40).map(object))
        }
    });
    let one = One::with(&server, |settings| settings.list_bytes = 4 * MIB);
    synced(&one.watch).await;
    assert_eq!(one.log.problems(), [""; 0]);
}

/// Two kinds of one cluster that take what they can get, and then name ever more pages, each of which comes late.
#[tokio::test(start_paused = true)]
async fn lists_of_one_cluster_without_an_end_leave_room_for_a_large_list_of_another() {
    let maps = |count: usize| (0..count).map(|i| large_map(&i.to_string(), 1, MIB / 2));
    let endless = Server::in_memory(lists(move |asked| match asked.nth {
        0 => page(20, "t", maps(13)),
        nth => page(20, &format!("t{nth}"), []).after(Duration::from_secs(120)),
    }));
    let healthy = Server::in_memory(lists(move |_| list(10, maps(8))));
    // The defaults, divided by 32.
    let bad = Cluster::with(&endless, |settings| {
        (settings.fleet_list_bytes, settings.list_bytes) = (16 * MIB, 8 * MIB);
    });
    let (maps, _) = bad.follow(WatchRequest::of::<ConfigMap>());
    let (_secrets, secrets_log) = bad.follow(WatchRequest::of::<Secret>());
    for_millis(30_000).await;
    let cluster = bad.beside("good", &healthy);
    let (watch, log) = cluster.follow(WatchRequest::of::<ConfigMap>());
    let began = Instant::now();
    synced(&watch).await;
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(5) && log.problems().is_empty(),
        "{took:?}"
    );
    assert!(maps.status().problem.is_none() && !secrets_log.problems().is_empty());
    let given_up = || maps.status().problem.is_some();
    within(Duration::from_secs(900), "it is given up", given_up).await;
    let problem = maps.status().problem.unwrap().error.to_string();
    assert!(problem.contains("6 pages with 13 objects"), "{problem}");
}
