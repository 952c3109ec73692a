//! The watch of a hub. Nobody probes a hub but its watch.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_watch::{HubEvent, HubWatch, WatchRequest, WatchSettings};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use mcr_doubles::scripted::{Answer, Server};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn a_hub_watch_with_a_name_lists_once() {
    let server = Server::in_memory(serves_one_map);
    let hub = HubWatch::new(server.client(), WatchRequest::of::<ConfigMap>());
    // Long enough for a list, if the watch had started.
    for_millis(1_000).await;
    listed(&mut hub.name("fleet hub".try_into().unwrap())).await;
    assert_eq!(server.lists(MAPS).len(), 1);
}

/// A hub that sends the head of a watch with its first event, after a permit.
fn hub_without_a_head(event_comes: &Arc<Semaphore>) -> (Server, HubWatch) {
    let gate = event_comes.clone();
    let server = Server::in_memory(move |asked| {
        if !asked.is_watch() {
            list(10, [map("a", 1)])
        } else {
            Answer::watch([&event("ADDED", map("b", 11))]).after_gate(&gate)
        }
    });
    let hub = HubWatch::new(server.client(), WatchRequest::of::<ConfigMap>());
    (server, hub)
}

async fn listed(hub: &mut HubWatch) {
    for expected in ["a", "synced"] {
        match hub.next().await {
            HubEvent::Applied(key, _) => assert_eq!(&*key.name, expected),
            HubEvent::Synced => assert_eq!(expected, "synced"),
            other => panic!("{other:?}"),
        }
    }
}

/// No supervisor probes a hub, and its head may be minutes away.
#[tokio::test(start_paused = true)]
async fn a_hub_that_falls_silent_before_the_head_of_a_watch_is_found_out_within_thirty_seconds() {
    let (server, mut hub) = hub_without_a_head(&Arc::new(Semaphore::new(0)));
    listed(&mut hub).await;
    // The hub answers the first probe, so that only the second one finds it out.
    let probed = async {
        eventually("it is probed", || server.lists(MAPS).len() == 2).await;
        server.fall_silent();
        Instant::now()
    };
    let failing = async {
        match hub.next().await {
            HubEvent::Failing(problem) => (problem.error.to_string(), Instant::now()),
            other => panic!("{other:?}"),
        }
    };
    let (silent, (problem, found)) = tokio::join!(probed, failing);
    assert_eq!(problem, "no answer within 28 s");
    assert!(found - silent <= Duration::from_secs(30), "{:?}", found - silent);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_sends_the_head_of_a_watch_late_does_not_fail() {
    let event_comes = Arc::new(Semaphore::new(0));
    let (server, mut hub) = hub_without_a_head(&event_comes);
    listed(&mut hub).await;
    let nothing = timeout(Duration::from_secs(240), hub.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(server.watches(MAPS).len(), 1);
    event_comes.add_permits(1);
    match hub.next().await {
        HubEvent::Applied(key, _) => assert_eq!(&*key.name, "b"),
        other => panic!("{other:?}"),
    }
}

/// One tenant has more objects than fit into a list, or into a response that a client reads as a whole.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_much_is_left_out_of_a_hub_watch_of_all_clusters() {
    let object = |name: usize, cluster: &str, bytes: usize| {
        let mut map = map(&format!("{cluster}-{name}"), 1);
        map["metadata"]["annotations"] = serde_json::json!({"cluster": cluster, "large": "x".repeat(bytes)});
        map
    };
    let large = (0..200).map(|name| object(name, "evil", 30_000));
    let all: Vec<_> = [object(0, "a", 1)]
        .into_iter()
        .chain(large)
        .chain([object(0, "z", 1)])
        .collect();
    let server = Server::in_memory(move |asked| {
        let from = asked.get("continue").map_or(0, |token| token.parse().unwrap());
        let limit = asked
            .get("limit")
            .map_or(all.len(), |limit| limit.parse().unwrap());
        let to = (from + limit).min(all.len());
        let items = all[from..to].iter().cloned();
        match asked.is_watch() {
            true => Answer::watch([]),
            false if to < all.len() => page(10, &to.to_string(), items),
            false => list(10, items),
        }
    });
    let cluster = Cluster::with(&server, |_| {});
    // The client of a cluster reads a response as a whole.
    for client in [server.client(), cluster.client()] {
        let request = WatchRequest::of::<ConfigMap>();
        let mut settings = WatchSettings::default();
        settings.list_bytes = 2 << 20;
        let hub = HubWatch::projected_by_cluster(
            client,
            request,
            |metadata| metadata.annotation("cluster"),
            |_| Some(()),
        );
        let mut hub = hub.settings(settings);
        let mut seen = Vec::new();
        loop {
            match timeout(Duration::from_secs(60), hub.next())
                .await
                .expect("an event")
            {
                HubEvent::Applied(key, ()) => seen.push(key.namespace.unwrap().to_string()),
                HubEvent::Synced => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, ["a", "z"]);
    }
}
