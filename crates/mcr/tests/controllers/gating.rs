//! Watches that gate all requests of their controller until they have listed once.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::support::{
    ApiAccess, World,
    maps::{keys, maps, record},
    name, sleep, until_true,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    BuildError, Cluster, ClusterSelector, Controller, ControllerHandle, Enqueue, Fleet, FleetEvent,
    GatingWatch, HUB, ObjectKey, RequestKey, WatchOptions, Watched,
};
use mcr_testkit::log::Log;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Level;

/// Leads to no request: the watch is there for its store.
fn only_read(_: Watched<Secret>) -> Vec<RequestKey> {
    Vec::new()
}

/// A controller of ConfigMaps whose reconciler reads the Secrets of another cluster.
fn reads(options: WatchOptions) -> Controller<ConfigMap> {
    maps().watches_with(&(), only_read, options)
}

fn hub() -> WatchOptions {
    WatchOptions::new().clusters(ClusterSelector::hub())
}

/// The gating watches as `cluster watch: reason`.
fn waiting(handle: &ControllerHandle) -> Vec<String> {
    let line = |watch: GatingWatch| format!("{} {}: {}", watch.cluster, watch.watch, watch.reason);
    handle.status().gated_by.into_iter().map(line).collect()
}

/// Waits until the only gating watch has a reason that begins so.
async fn until_waiting(handle: &ControllerHandle, reason: &str) {
    let has = format!(" secrets: {reason}");
    until_true(|| matches!(&waiting(handle)[..], [one] if one.contains(&has))).await;
}

/// Waits until a request of this cluster could be dispatched but for the gating watch.
async fn until_ready(handle: &ControllerHandle, cluster: &str) {
    let dispatchable = || {
        let status = handle.status();
        let cluster = status.clusters.get(&name(cluster));
        cluster.is_some_and(|cluster| cluster.ready > 0 && cluster.gate.is_open() && !cluster.parked)
    };
    until_true(dispatchable).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_named_cluster_gates_on_request_and_one_of_the_hub_unless_it_is_optional() {
    let named = || WatchOptions::new().clusters(ClusterSelector::name("control"));
    for (options, cluster, gates) in [
        (named(), "control", false),
        (named().gates_all(false), "control", false),
        (named().gates_all(true), "control", true),
        (named().optional().gates_all(true), "control", true),
        (hub(), HUB, true),
        (hub().gates_all(true), HUB, true),
        (hub().gates_all(false), HUB, false),
        (hub().optional(), HUB, false),
        (hub().optional().gates_all(true), HUB, true),
        (WatchOptions::new(), HUB, false),
    ] {
        let case = format!("{options:?}");
        let mut world = World::new();
        let (a, other) = (world.join("a"), world.join(cluster));
        other.forbid("secrets");
        a.put_map("ns/x", "1");
        let (handle, seen) = world.run_with(reads(options), record);
        if gates {
            until_ready(&handle, "a").await;
            until_waiting(&handle, "forbidden").await;
            sleep(2_000).await;
            assert_eq!(seen.len(), 0, "{case}");
            other.allow("secrets");
        }
        seen.wait_for(1).await;
        assert_eq!(handle.status().gated_by, [], "{case}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_controller_of_the_hub_gates_only_there_as_any_watch() {
    let mut world = World::new();
    let controller = reads(WatchOptions::new()).clusters(ClusterSelector::hub());
    let handle = world.run(controller.build(record, Arc::default()).unwrap());
    assert_eq!(handle.status().gated_by, []);
    world.end().await;
}

#[test]
fn a_watch_that_gates_must_name_its_cluster() {
    let build = |options: WatchOptions| {
        let controller = reads(options);
        controller.build(record, Arc::default()).map(|_| ())
    };
    let gates = |clusters| build(WatchOptions::new().clusters(clusters).gates_all(true));
    for clusters in [
        ClusterSelector::all(),
        !ClusterSelector::hub(),
        ClusterSelector::names(["a", "b"]),
        ClusterSelector::hub().or(ClusterSelector::name("a")),
        ClusterSelector::hub().and(ClusterSelector::label("env", "prod")),
    ] {
        let selector = clusters.to_string();
        assert_eq!(
            gates(clusters),
            Err(BuildError::GatesAll {
                controller: "maps".into(),
                watch: "secrets".into(),
                selector
            })
        );
    }
    // Its selector is that of the controller: all but the hub.
    let error = build(WatchOptions::new().gates_all(true))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the watch of secrets has gates_all(true), but its selector (not name=hub)"),
        "{error}"
    );
    assert_eq!(gates(ClusterSelector::names(["a"])), Ok(()));
    let of_one = maps().clusters(ClusterSelector::name("a"));
    let of_one = of_one.watches_with(&(), only_read, WatchOptions::new().gates_all(true));
    assert!(of_one.build(record, Arc::default()).is_ok());
    assert!(build(hub().gates_all(false)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_of_sources_of_the_fleet_and_for_the_hub_itself_wait_too() {
    let mut world = World::new();
    let (a, control) = (world.join("a"), world.join(HUB));
    control.forbid("secrets");
    a.put_map("ns/watched", "1");
    control.put_map("ns/watched", "1");
    let key = |name: &str| ObjectKey::namespaced("ns", name);
    let source = move |enqueue: Enqueue, _: CancellationToken| async move {
        enqueue.add(RequestKey::new(name("a"), key("of-a-source")));
        Ok(())
    };
    let each = move |_: Cluster, enqueue: mcr::ClusterEnqueue, _: CancellationToken| async move {
        enqueue.add(key("of-a-source-of-its-own"));
        Ok(())
    };
    let joined = move |event: &FleetEvent, _: &Fleet| match event {
        FleetEvent::Engaged(cluster) => Some(RequestKey::new(cluster.name().clone(), key("joined"))),
        _ => None,
    };
    // Only the hub's own gate lets the requests for the hub through: there the watch is optional.
    let controller = reads(hub().optional().gates_all(true))
        .clusters(ClusterSelector::all())
        .source(source)
        .cluster_source(each)
        .watches_fleet(joined);
    let (handle, seen) = world.run_with(controller, record);
    let ready = || {
        let status = handle.status();
        let of = |cluster| status.clusters.get(&name(cluster)).map_or(0, |of| of.ready);
        (of("a"), of(HUB)) == (4, 3) && status.clusters.values().all(|status| status.gate.is_open())
    };
    until_true(ready).await;
    sleep(2_000).await;
    assert_eq!((seen.len(), ready()), (0, true));
    control.allow("secrets");
    seen.wait_for(7).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_list_opens_for_ever_whatever_becomes_of_the_hub() {
    let mut world = World::new();
    let (a, control) = (world.join("a"), world.join(HUB));
    a.put_map("ns/x", "0");
    let (handle, seen) = world.run_with(reads(hub()), record);
    seen.wait_for(1).await;
    let mut changes = 0;
    let mut still_runs = async || {
        changes += 1;
        a.put_map("ns/x", &changes.to_string());
        assert_eq!(
            seen.wait_for(changes + 1).await[changes],
            format!("cluster://a/ns/x live {changes}")
        );
        assert_eq!(handle.status().gated_by, []);
    };
    let parked = || handle.status().clusters.get(&name(HUB)).map(|hub| hub.parked);
    // Unreachable.
    control.down(true);
    until_true(|| parked() == Some(true)).await;
    still_runs().await;
    // It lists again, and may not.
    control.forbid("secrets");
    control.down(false);
    until_true(|| parked() == Some(false)).await;
    still_runs().await;
    // Gone.
    world.remove(HUB);
    until_true(|| parked().is_none()).await;
    still_runs().await;
    // Replaced by another one, whose Secrets can't be listed.
    let other = ApiAccess::default();
    other.forbid("secrets");
    world.add(HUB, &other, &[]);
    until_true(|| parked() == Some(false)).await;
    still_runs().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_has_listed_for_another_controller_opens_at_once() {
    let mut world = World::new();
    let (a, control) = (world.join("a"), world.join(HUB));
    a.put_map("ns/x", "1");
    for _ in 0..2 {
        let (_, seen) = world.run_with(reads(hub()), record);
        seen.wait_for(1).await;
    }
    assert_eq!(control.lists(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_leaves_or_is_replaced_before_its_first_list_opens_nothing() {
    let mut world = World::new();
    let (a, first) = (world.join("a"), ApiAccess::default());
    first.forbid("secrets");
    world.identify(HUB, &first, "first");
    a.put_map("ns/x", "1");
    let (handle, seen) = world.run_with(reads(hub()), record);
    until_ready(&handle, "a").await;
    until_waiting(&handle, "forbidden: secrets is forbidden").await;
    assert!(handle.status().gated_by[0].blocked);
    world.remove(HUB);
    until_waiting(&handle, "the cluster left the fleet before").await;
    assert!(!handle.status().gated_by[0].blocked);
    world.identify(HUB, &first, "first");
    until_waiting(&handle, "forbidden").await;
    // Another cluster under the same name, which does not answer.
    let second = ApiAccess::default();
    second.down(true);
    world.identify(HUB, &second, "second");
    until_waiting(&handle, "the cluster is Unreachable: ").await;
    // The first one would list now, but it is no longer the hub.
    first.allow("secrets");
    sleep(60_000).await;
    assert_eq!((seen.len(), first.watches()), (0, 0));
    second.down(false);
    seen.wait_for(1).await;
    assert_eq!(waiting(&handle), Vec::<String>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_hub_is_named_in_the_status_and_after_10_s_in_the_log() {
    let log = Log::of_this_thread(Level::INFO);
    let announced = || log.lines_with("the controller dispatches no request before these watches");
    let (mut world, _a) = World::with_map();
    let began = Instant::now();
    let (handle, seen) = world.run_with(reads(hub()), record);
    until_ready(&handle, "a").await;
    let status = serde_json::to_value(handle.status()).unwrap();
    let missing = "the fleet has no cluster of this name; a provider must announce it";
    assert_eq!(
        status["gatedBy"],
        json!([{"cluster": "hub", "watch": "secrets", "reason": missing, "blocked": false}])
    );
    until_true(|| announced().len() == 1).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    let line = &announced()[0];
    assert!(
        line.contains(" WARN ")
            && line.ends_with(&format!(
                "have listed for the first time. If its requests don't need one of them, set \
                 WatchOptions::gates_all(false) for it controller=\"maps\" watches=secrets in cluster hub: {missing}"
            )),
        "{line}"
    );
    // Once, until the reason changes.
    sleep(120_000).await;
    assert_eq!(announced().len(), 1);
    let control = ApiAccess::default();
    control.forbid("secrets");
    world.suspend(HUB, &control);
    until_true(|| announced().len() == 2).await;
    let line = &announced()[1];
    assert!(
        line.ends_with("secrets in cluster hub: the cluster is Suspended: asleep"),
        "{line}"
    );
    world.add(HUB, &control, &[]);
    until_true(|| announced().len() == 3).await;
    let line = &announced()[2];
    assert!(
        line.contains("cluster hub: forbidden: secrets is forbidden. Grant list and watch"),
        "{line}"
    );
    sleep(120_000).await;
    assert_eq!((announced().len(), seen.len()), (3, 0));
    control.allow("secrets");
    seen.wait_for(1).await;
    assert_eq!(log.lines_with("all gating watches have listed").len(), 1);
    world.end().await;
}

/// More keys than a closed gate keeps: those that were left out are made anew when it opens.
#[tokio::test(start_paused = true)]
async fn no_request_of_a_mapper_is_lost_behind_a_closed_gate() {
    const OBJECTS: usize = 10_300;
    let (mut world, a) = World::with_a();
    (0..OBJECTS).for_each(|name| a.put_map(&format!("ns/m{name}"), "1"));
    a.forbid("secrets");
    let controller = Controller::named("all")
        .watches(|map: Watched<ConfigMap>| ObjectKey::of(&*map.object))
        .watches(only_read);
    let (handle, seen) = world.run_with(controller, keys);
    until_true(|| handle.status().counts.overflowed == 300).await;
    assert_eq!(handle.status().queue.ready, 10_000);
    a.allow("secrets");
    let all = || HashSet::<String>::from_iter(seen.all()).len();
    until_true(|| handle.status().counts.successes >= OBJECTS as u64 && all() == OBJECTS).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_lists_in_time_is_not_logged() {
    let log = Log::of_this_thread(Level::INFO);
    let (mut world, _a) = World::with_map();
    let (_, seen) = world.run_with(reads(hub()), record);
    sleep(9_000).await;
    world.join(HUB);
    seen.wait_for(1).await;
    sleep(60_000).await;
    for words in ["the controller dispatches no request", "all gating watches"] {
        assert_eq!(log.lines_with(words), Vec::<String>::new());
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_while_it_waits_for_the_hub_ends_at_once_and_runs_nothing() {
    let (mut world, _a) = World::with_map();
    let (handle, seen) = world.run_with(reads(hub()), record);
    until_ready(&handle, "a").await;
    let ended = tokio::time::timeout(Duration::from_secs(5), world.end());
    assert_eq!((ended.await, seen.len()), (Ok(()), 0));
}
