//! A watch of a hub that keeps a projection of each object. The hub is simulated.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{HubEvent, HubWatch, ObjectKey, WatchRequest, WatchSettings};
use mcr_testkit::sim::SimCluster;
use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    harness::{MAPS, Running, event, eventually, list, map, page, ready},
    server::{Answer, Server},
};

/// Many heartbeats while nobody reads.
const HEARTBEATS: usize = 200;

/// A ConfigMap counts only with a label `team`, and nothing else of it matters. The team `panic` makes the projection panic.
fn team(client: kube::Client) -> HubWatch<Arc<str>> {
    let request = WatchRequest::of::<ConfigMap>().labels("test");
    let mut settings = WatchSettings::default();
    settings.retry_cap = Duration::from_millis(50);
    let watch = HubWatch::projected(client, request, |object| {
        let map: ConfigMap = object.decode().ok()?;
        let team = map.metadata.labels?.remove("team")?;
        assert!(team != "panic", "a panic of the caller");
        Some(team.into())
    });
    watch.settings(settings)
}

fn key(name: &str) -> String {
    format!("default/{name}")
}

fn put(hub: &SimCluster, name: &str, team: Option<&str>) {
    let mut labels = json!({"test": "yes"});
    if let Some(team) = team {
        labels["team"] = team.into();
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels}});
    match hub.get("configmaps", &key(name)) {
        Some(_) => hub.update(map),
        None => hub.create(map),
    }
    .unwrap();
}

fn delete(hub: &SimCluster, name: &str) {
    hub.delete("configmaps", &key(name)).unwrap();
}

fn heartbeat(hub: &SimCluster, name: &str, count: usize) {
    let mut map = hub.get("configmaps", &key(name)).unwrap();
    map["metadata"]["annotations"] = json!({"heartbeat": count.to_string()});
    hub.update(map).unwrap();
}

/// Ends the watch, and drops the history before the next one begins: that one is answered with 410.
async fn relist(hub: &SimCluster, watch: &HubWatch<Arc<str>>, during: impl FnOnce()) {
    let lists = watch.status().lists;
    hub.end_watches();
    during();
    hub.compact(hub.resource_version());
    eventually("it lists again", || watch.status().lists > lists).await;
}

/// The next event but for problems that pass.
async fn next(watch: &mut HubWatch<Arc<str>>) -> String {
    loop {
        let event = timeout(Duration::from_secs(60), watch.next())
            .await
            .expect("an event");
        return match event {
            HubEvent::Applied(key, team) => format!("{}: {team}", key.name),
            HubEvent::Deleted(key) => format!("-{}", key.name),
            HubEvent::Synced => "synced".to_owned(),
            HubEvent::Failing(_) => continue,
            other => panic!("{other:?}"),
        };
    }
}

/// Nothing came before this event.
async fn marker(hub: &SimCluster, watch: &mut HubWatch<Arc<str>>, name: &str) {
    put(hub, name, Some("marker"));
    assert_eq!(next(watch).await, format!("{name}: marker"));
}

#[tokio::test]
async fn a_hub_watch_with_a_name_lists_once() {
    let hub = SimCluster::new();
    let watch = team(hub.client());
    // Long enough for a list, if the watch had started.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut watch = watch.name("fleet hub".try_into().unwrap());
    assert_eq!(next(&mut watch).await, "synced");
    assert_eq!(hub.audit().count(|event| event.is_list("configmaps")), 1);
}

#[tokio::test]
async fn heartbeats_and_lists_without_a_new_projection_bring_no_event() {
    let hub = SimCluster::new();
    put(&hub, "a", Some("red"));
    put(&hub, "b", Some("blue"));
    put(&hub, "none", None);
    let mut watch = team(hub.client());
    let mut first = [next(&mut watch).await, next(&mut watch).await];
    first.sort();
    assert_eq!(first, ["a: red", "b: blue"]);
    assert_eq!(next(&mut watch).await, "synced", "after all that was there");
    for count in 0..HEARTBEATS {
        heartbeat(&hub, "a", count);
        heartbeat(&hub, "none", count);
    }
    marker(&hub, &mut watch, "after-heartbeats").await;
    relist(&hub, &watch, || heartbeat(&hub, "b", 0)).await;
    marker(&hub, &mut watch, "after-a-list").await;
    put(&hub, "a", Some("green"));
    assert_eq!(next(&mut watch).await, "a: green");
    let get = |name: &str| watch.get(&ObjectKey::namespaced("default", name));
    assert_eq!(get("a").as_deref(), Some("green"));
    assert_eq!(get("none"), None);
}

#[tokio::test]
async fn an_object_that_counts_no_more_is_deleted_and_so_is_one_that_a_list_lacks() {
    let hub = SimCluster::new();
    for name in ["a", "b", "never"] {
        put(&hub, name, None);
    }
    let mut watch = team(hub.client());
    assert_eq!(next(&mut watch).await, "synced");
    put(&hub, "a", Some("red"));
    assert_eq!(next(&mut watch).await, "a: red");
    put(&hub, "a", None);
    assert_eq!(next(&mut watch).await, "-a");
    delete(&hub, "a");
    delete(&hub, "never");
    put(&hub, "b", Some("blue"));
    assert_eq!(next(&mut watch).await, "b: blue");
    put(&hub, "c", Some("blue"));
    assert_eq!(next(&mut watch).await, "c: blue");
    // Between two watches, so that only the list says it.
    relist(&hub, &watch, || {
        put(&hub, "b", None);
        delete(&hub, "c");
    })
    .await;
    let mut gone = [next(&mut watch).await, next(&mut watch).await];
    gone.sort();
    assert_eq!(gone, ["-b", "-c"]);
    marker(&hub, &mut watch, "marker").await;
}

#[tokio::test]
async fn a_projection_that_panics_ends_no_watch_and_deletes_nothing() {
    let hub = SimCluster::new();
    put(&hub, "a", Some("red"));
    put(&hub, "b", Some("panic"));
    let mut watch = team(hub.client());
    assert_eq!(next(&mut watch).await, "a: red");
    assert_eq!(next(&mut watch).await, "synced");
    put(&hub, "a", Some("panic"));
    marker(&hub, &mut watch, "after-a-panic").await;
    relist(&hub, &watch, || {}).await;
    marker(&hub, &mut watch, "after-a-list").await;
    let a = ObjectKey::namespaced("default", "a");
    assert_eq!(watch.get(&a).as_deref(), Some("red"), "as it was before");
    assert!(watch.status().skipped >= 4, "{:?}", watch.status());
    put(&hub, "a", Some("green"));
    put(&hub, "b", Some("blue"));
    assert_eq!(next(&mut watch).await, "a: green");
    assert_eq!(next(&mut watch).await, "b: blue");
}

/// A hub that sends the head of a watch with its first event, after a permit.
fn hub_without_a_head(event_comes: &Arc<Semaphore>) -> (Server, HubWatch) {
    let gate = event_comes.clone();
    let server = Server::in_memory(move |asked| match asked.is_watch() {
        false => list(10, [map("a", 1)]),
        true => Answer::watch([&event("ADDED", map("b", 11))]).after_gate(&gate),
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
        map["metadata"]["annotations"] = json!({"cluster": cluster, "large": "x".repeat(bytes)});
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
    let running = Running::start();
    let cluster = running.join_by("hub", server.access()).await;
    ready(&cluster).await;
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
    running.stop().await;
}
