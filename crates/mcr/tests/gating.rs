//! Watches that gate all requests of their controller until they have listed once.
#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    Access, BoxError, BuildError, Cluster, ClusterSelector, ClusterSpec, Controller, ControllerHandle,
    Enqueue, Fleet, FleetEvent, GatingWatch, HUB, Manager, ObjectKey, OwnsOptions, Request, RequestKey,
    Trust, WatchOptions, Watched,
};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{
    faults::{Fault, FaultProxy, Match, Upstream},
    log::Log,
    sim::SimCluster,
    waiting::{Background, eventually},
};
use serde_json::json;
use support::{
    ApiAccess, Seen, World,
    maps::{maps, record},
    name, sleep, until, until_true,
};
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
    for _ in 0..10_000 {
        if matches!(&waiting(handle)[..], [one] if one.contains(&has)) {
            return;
        }
        sleep(10).await;
    }
    panic!("{reason} expected, not {:?}", waiting(handle));
}

/// Waits until a request of this cluster could be dispatched but for the gating watch.
async fn until_ready(handle: &ControllerHandle, cluster: &str) {
    let dispatchable = || {
        let status = handle.status();
        let cluster = status.clusters.get(&name(cluster))?;
        (cluster.ready > 0 && cluster.gate.is_open() && !cluster.parked).then_some(())
    };
    until(dispatchable).await;
}

// ---- The program as one writes it first, with a slow hub -------------------------------------------------------------

/// Runs a controller with a hub whose lists are delayed by `first_byte`. Returns the first findings of its reconciler in the hub's store,
/// which has the object.
async fn findings(first_byte: Duration) -> Vec<bool> {
    let (control, eu) = (SimCluster::new(), SimCluster::new());
    let meta = json!({"name": "a", "namespace": "default"});
    let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": meta});
    control.create(object("Secret")).unwrap();
    eu.create(object("ConfigMap")).unwrap();
    let server = control.serve().await.unwrap();
    let upstream = Upstream::new(server.url()).ca_pem(server.ca_pem());
    let proxy = FaultProxy::start(upstream).await.unwrap();
    let slow = Fault::Slow {
        first_byte,
        bytes_per_second: None,
    };
    proxy.set(slow.on(Match::any().resource("secrets"))).await;
    let provider = ClustersProvider::new();
    let access = Access::kubeconfig(proxy.kubeconfig_with_token(&control.admin_token()), Trust::Trusted);
    provider.handle().add(ClusterSpec::new(name(HUB), access));
    provider
        .handle()
        .add(ClusterSpec::new(name("eu"), eu.client().into()));
    let look = |request: Request<ConfigMap>, found: Arc<Seen<bool>>| async move {
        let store = request.fleet.get(HUB)?.store::<Secret>()?;
        found.push(matches!(store.get(&request.key.object), Ok(Some(_))));
        Ok::<_, BoxError>(())
    };
    // Every request is one chance to see the hub too early.
    let again = |enqueue: Enqueue, stop: CancellationToken| async move {
        let key = RequestKey::new(name("eu"), ObjectKey::namespaced("default", "a"));
        let pause = || tokio::time::sleep(Duration::from_millis(20));
        while stop.run_until_cancelled(pause()).await.is_some() {
            enqueue.add(key.clone());
        }
        Ok(())
    };
    let found: Seen<bool> = Seen::default();
    let controller = reads(hub())
        .source(again)
        .build(look, Arc::new(found.clone()))
        .unwrap();
    let fleet = Fleet::builder().provider(provider).build();
    let manager = Manager::builder()
        .fleet(fleet)
        .controller(controller)
        .build()
        .unwrap();
    let running = Background::start(|stop| manager.run_until(stop));
    let three = || (found.len() >= 3).then_some(());
    eventually(Duration::from_secs(60), "three reconciles", three).await;
    running.stop().await.unwrap();
    found.all()
}

#[tokio::test]
async fn a_reconciler_that_reads_a_slow_hub_finds_what_is_there() {
    let found = findings(Duration::from_millis(800)).await;
    assert!(found.iter().all(|found| *found), "{found:?}");
}

// ---- Which watches gate ----------------------------------------------------------------------------------------------

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
        let seen = Seen::default();
        let handle = world.run(reads(options).build(record, Arc::new(seen.clone())).unwrap());
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
    for words in [
        "controller maps",
        "watch of secrets",
        "not name=hub",
        ".clusters(ClusterSelector::name(\"NAME\"))",
    ] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(gates(ClusterSelector::names(["a"])), Ok(()));
    let of_one = maps().clusters(ClusterSelector::name("a"));
    let of_one = of_one.watches_with(&(), only_read, WatchOptions::new().gates_all(true));
    assert!(of_one.build(record, Arc::default()).is_ok());
    assert!(build(hub().gates_all(false)).is_ok());
}

// ---- What the gate holds back ----------------------------------------------------------------------------------------

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
    let seen: Seen<String> = Seen::default();
    // Only the hub's own gate lets the requests for the hub through: there the watch is optional.
    let controller = reads(hub().optional().gates_all(true))
        .clusters(ClusterSelector::all())
        .source(source)
        .cluster_source(each)
        .watches_fleet(joined);
    let handle = world.run(controller.build(record, Arc::new(seen.clone())).unwrap());
    let ready = || {
        let status = handle.status();
        let of = |cluster| {
            status
                .clusters
                .get(&name(cluster))
                .map_or(0, |status| status.ready)
        };
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
async fn an_owned_kind_in_the_hub_gates_too() {
    let mut world = World::new();
    let (a, control) = (world.join("a"), world.join(HUB));
    control.forbid("secrets");
    a.put_map("ns/x", "1");
    let seen: Seen<String> = Seen::default();
    let controller = maps().owns_with::<Secret>(&(), OwnsOptions::new().watch(hub()));
    let handle = world.run(controller.build(record, Arc::new(seen.clone())).unwrap());
    until_ready(&handle, "a").await;
    sleep(2_000).await;
    assert_eq!(seen.len(), 0);
    control.allow("secrets");
    seen.wait_for(1).await;
    world.end().await;
}

// ---- It opens once, for ever -----------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn the_first_list_opens_for_ever_whatever_becomes_of_the_hub() {
    let mut world = World::new();
    let (a, control) = (world.join("a"), world.join(HUB));
    a.put_map("ns/x", "0");
    let seen: Seen<String> = Seen::default();
    let handle = world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
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
    let other = ApiAccess::new(support::Api::default());
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
    let seen: Seen<String> = Seen::default();
    world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
    seen.wait_for(1).await;
    world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
    seen.wait_for(2).await;
    assert_eq!(control.lists(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_leaves_or_is_replaced_before_its_first_list_opens_nothing() {
    let mut world = World::new();
    let (a, first) = (world.join("a"), ApiAccess::new(support::Api::default()));
    first.forbid("secrets");
    world.identify(HUB, &first, "first");
    a.put_map("ns/x", "1");
    let seen: Seen<String> = Seen::default();
    let handle = world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
    until_ready(&handle, "a").await;
    until_waiting(&handle, "forbidden: secrets is forbidden").await;
    assert!(handle.status().gated_by[0].blocked);
    world.remove(HUB);
    until_waiting(&handle, "the cluster left the fleet before").await;
    assert!(!handle.status().gated_by[0].blocked);
    world.identify(HUB, &first, "first");
    until_waiting(&handle, "forbidden").await;
    // Another cluster under the same name, which does not answer.
    let second = ApiAccess::new(support::Api::default());
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

// ---- It says what it waits for ---------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_missing_hub_is_named_in_the_status_and_after_10_s_in_the_log() {
    let log = Log::of_this_thread(Level::INFO);
    let announced = || log.lines_with("the controller dispatches no request before these watches");
    let (mut world, _a) = World::with_map();
    let seen: Seen<String> = Seen::default();
    let began = Instant::now();
    let handle = world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
    until_ready(&handle, "a").await;
    let status = serde_json::to_value(handle.status()).unwrap();
    let missing = "the fleet has no cluster of this name; a provider must announce it";
    assert_eq!(
        status["gatedBy"],
        json!([{"cluster": "hub", "watch": "secrets", "reason": missing, "blocked": false}])
    );
    until_true(|| announced().len() == 1).await;
    assert!(
        began.elapsed() >= Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
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
    let control = ApiAccess::new(support::Api::default());
    control.forbid("secrets");
    world.suspend(HUB, &control);
    until_true(|| announced().len() == 2).await;
    assert!(
        announced()[1].ends_with("secrets in cluster hub: the cluster is Suspended: asleep"),
        "{}",
        announced()[1]
    );
    world.add(HUB, &control, &[]);
    until_true(|| announced().len() == 3).await;
    assert!(
        announced()[2].contains("cluster hub: forbidden: secrets is forbidden. Grant list and watch"),
        "{}",
        announced()[2]
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
    let seen = Seen::<String>::default();
    let controller = Controller::named("all")
        .watches(|map: Watched<ConfigMap>| ObjectKey::of(&*map.object))
        .watches(only_read)
        .build(
            async |request: Request<()>, seen: Arc<Seen<String>>| {
                seen.push(request.name().to_owned());
                Ok::<_, BoxError>(())
            },
            Arc::new(seen.clone()),
        );
    let handle = world.run(controller.unwrap());
    until_true(|| handle.status().counts.overflowed == 300).await;
    assert_eq!(handle.status().queue.ready, 10_000);
    a.allow("secrets");
    let all = || {
        seen.all()
            .into_iter()
            .collect::<std::collections::HashSet<_>>()
            .len()
    };
    until_true(|| handle.status().counts.successes >= OBJECTS as u64 && all() == OBJECTS).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_lists_in_time_is_not_logged() {
    let log = Log::of_this_thread(Level::INFO);
    let (mut world, _a) = World::with_map();
    let seen: Seen<String> = Seen::default();
    world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
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
    let seen: Seen<String> = Seen::default();
    let handle = world.run(reads(hub()).build(record, Arc::new(seen.clone())).unwrap());
    until_ready(&handle, "a").await;
    let ended = tokio::time::timeout(Duration::from_secs(5), world.end());
    assert_eq!((ended.await, seen.len()), (Ok(()), 0));
}
