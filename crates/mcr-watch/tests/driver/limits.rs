//! Kinds that are too large for the limits that the fleet has set.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr_watch::{StoreError, WatchRequest, WatchSettings};

use mcr_doubles::scripted::{Asked, Server};

use crate::harness::*;

const LIMIT: usize = 4_000;
const MINUTE: Duration = Duration::from_secs(60);

fn limited(settings: &mut WatchSettings) {
    settings.held_bytes = Some(LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_holds_too_much_fails_and_its_store_stays_readable() {
    let server =
        Server::in_memory(
            |asked: &Asked| match (asked.path.as_str(), asked.is_watch(), asked.nth) {
                (MAPS, false, 0) => list(10, [map("a", 1), large_map("b", 2, LIMIT / 2)]),
                (MAPS, false, _) => list(30, [map("a", 1)]),
                (_, false, _) => list(10, []),
                (_, true, _) => quiet(),
            },
        );
    let one = One::with(&server, limited);
    let (secrets, _log) = one.cluster.follow(WatchRequest::of::<Secret>());
    synced(&one.watch).await;
    // What is replaced and deleted does not count.
    for version in 11..15 {
        let changed = event("MODIFIED", large_map("b", version, LIMIT / 2 + version as usize));
        server.send(MAPS, &changed).await;
    }
    one.log.becomes(&["+a", "+b", "~b", "~b", "~b", "~b"]).await;
    assert!(one.watch.status().problem.is_none());
    server
        .send(MAPS, &event("ADDED", large_map("c", 16, LIMIT / 2)))
        .await;
    let problem = problem(&one.log).await;
    assert!(
        problem.starts_with("the objects take 0.1 MiB of memory"),
        "{problem}"
    );
    assert!(problem.contains("WatchSettings::held_bytes"), "{problem}");
    let maps = one.cluster.store::<ConfigMap>().unwrap();
    assert_eq!(maps.len().unwrap(), 3);
    let kinds = one.cluster.watches.kinds().into_iter();
    let status = { kinds }.find(|kind| kind.kind == "configmaps").unwrap();
    assert!(status.held_bytes > LIMIT && status.held_bytes == maps.held_bytes());
    assert_eq!(
        (status.synced, status.blocked, status.problem),
        (true, false, Some(problem))
    );
    synced(&secrets).await;
    // The list after some minutes shows that it has become smaller.
    within(10 * MINUTE, "it is mended", || {
        one.watch.status().problem.is_none()
    })
    .await;
    one.log
        .becomes(&["+a", "+b", "~b", "~b", "~b", "~b", "+c", "-b", "-c"])
        .await;
    let lists = server.lists(MAPS);
    assert_eq!(lists.len(), 2);
    assert!(lists[1].at - lists[0].at >= 5 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_first_list_that_holds_too_much_is_never_readable() {
    let server = Server::in_memory(|asked| {
        let maps = (0..10).map(|i| large_map(&format!("map-{i}"), 1, LIMIT / 5));
        if asked.is_watch() { quiet() } else { list(10, maps) }
    });
    let one = One::with(&server, limited);
    let problem = problem(&one.log).await;
    let maps = one.cluster.store::<ConfigMap>().unwrap();
    match maps.len().unwrap_err() {
        StoreError::NotListed { problem: why, .. } => assert_eq!(why, Some(problem)),
        other => panic!("{other}"),
    }
    // Each attempt transfers the whole list.
    tokio::time::sleep(4 * MINUTE).await;
    assert_eq!(server.lists(MAPS).len(), 1);
}
