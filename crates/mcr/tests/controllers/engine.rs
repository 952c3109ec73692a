//! Dispatch, deletions, the sync gate, parking, and clusters that leave.

use std::{sync::Arc, time::Duration};

use crate::support::{
    ApiAccess, Dropped, Seen, World,
    maps::{Fallible, keys, line, maps, record},
    name, sleep, until, until_true,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{Backoff, BoxError, Controller, Predicate, Request, WatchRequest};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn objects_of_every_cluster_are_reconciled_as_they_come_change_and_go() {
    let mut world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    a.put_map("ns/x", "1");
    let (handle, seen) = world.run_with(maps(), record);
    assert_eq!(seen.wait_for(1).await, ["cluster://a/ns/x live 1"]);
    b.put_map("ns/x", "2");
    assert_eq!(seen.wait_for(2).await[1], "cluster://b/ns/x live 2");
    a.put_map("ns/x", "3");
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/x live 3");
    a.delete("configmaps", "ns/x");
    assert_eq!(seen.wait_for(4).await[3], "cluster://a/ns/x deleted 3");
    a.put_map("ns/x", "4");
    assert_eq!(seen.wait_for(5).await[4], "cluster://a/ns/x live 4");
    assert_eq!(handle.status().counts.reconciles, 5);
    world.end().await;
    assert_eq!(seen.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_reported_until_it_succeeds_and_then_no_more() {
    let (mut world, a) = World::with_map();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(format!("{} {}", line(&request), request.attempt));
        if request.object.is_deleted() && request.attempt < 2 {
            return Err(BoxError::from("not yet"));
        }
        Ok(())
    };
    let again = |map: mcr::Watched<Secret>| mcr::ObjectKey::of(&*map.object);
    let (_, seen) = world.run_with(maps().watches(again), reconcile);
    seen.wait_for(1).await;
    a.delete("configmaps", "ns/x");
    let attempts = [0, 1, 2].map(|attempt| format!("cluster://a/ns/x deleted 1 {attempt}"));
    assert_eq!(seen.wait_for(4).await[1..], attempts);
    sleep(60_000).await;
    assert_eq!(seen.len(), 4);
    // A later request for the object gets `Absent`, not `Deleted`.
    a.put("secrets", "ns/x", json!({}));
    assert_eq!(seen.wait_for(5).await[4], "cluster://a/ns/x absent 0");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn deletions_missed_while_disconnected_are_reported_and_recreated_objects_are_not_deleted() {
    let (mut world, a) = World::with_a();
    a.put_map("ns/gone", "1");
    a.put_map("ns/new", "1");
    let (_, seen) = world.run_with(maps(), record);
    seen.wait_for(2).await;
    a.down(true);
    a.delete("configmaps", "ns/gone");
    a.delete("configmaps", "ns/new");
    a.put_map("ns/new", "2");
    sleep(2_000).await;
    a.down(false);
    let mut all = seen.wait_for(4).await.split_off(2);
    all.sort();
    assert_eq!(
        all,
        ["cluster://a/ns/gone deleted 1", "cluster://a/ns/new live 2"]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_is_not_deleted_any_more() {
    let (mut world, a) = World::with_map();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(line(&request));
        if request.object.is_deleted() {
            Fallible::<()>::Err("never".into())
        } else {
            Ok(())
        }
    };
    let one = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["value"] == "1");
    let some_deletes = Predicate::of::<ConfigMap>(move |old, new| new.is_some() || old.is_some_and(one));
    let backoff = Backoff {
        base: Duration::from_secs(1000),
        ..Backoff::default()
    };
    let same = |secret: mcr::Watched<Secret>| mcr::ObjectKey::of(&*secret.object);
    let controller = maps().backoff(backoff).predicate(some_deletes).watches(same);
    let (_, seen) = world.run_with(controller, reconcile);
    seen.wait_for(1).await;
    a.delete("configmaps", "ns/x");
    seen.wait_for(2).await;
    a.put_map("ns/x", "2");
    seen.wait_for(3).await;
    // A predicate ignores this deletion, so a later request gets nothing of the first deletion.
    a.delete("configmaps", "ns/x");
    sleep(1_000).await;
    a.put("secrets", "ns/x", json!({}));
    let lines = ["live 1", "deleted 1", "live 2", "absent"].map(|line| format!("cluster://a/ns/x {line}"));
    assert_eq!(seen.wait_for(4).await, lines);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_gate_opens_when_all_watches_have_listed() {
    let mut world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    a.put_map("ns/x", "1");
    b.put_map("ns/x", "1");
    a.forbid("secrets");
    let (handle, seen) = world.run_with(maps().owns::<Secret>(), record);
    assert_eq!(seen.wait_for(1).await, ["cluster://b/ns/x live 1"]);
    let status = until(|| {
        let status = serde_json::to_value(handle.status()).unwrap();
        (status["clusters"]["a"]["gate"] == "blocked").then_some(status)
    })
    .await;
    assert_eq!(status["clusters"]["b"]["gate"], "open");
    let kind = &status["clusters"]["a"]["kinds"][0];
    assert_eq!(kind["watch"], "secrets");
    let reason = kind["reason"].as_str().unwrap();
    assert!(reason.starts_with("forbidden: secrets is forbidden"), "{reason}");
    assert_eq!(status["clusters"]["a"]["ready"], 1);
    a.allow("secrets");
    assert_eq!(seen.wait_for(2).await[1], "cluster://a/ns/x live 1");
    let clusters = handle.status().clusters;
    assert!(clusters.values().all(|cluster| cluster.gate.is_open()));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_optional_watch_holds_nothing_back() {
    let (mut world, a) = World::with_map();
    a.forbid("secrets");
    let optional = mcr::OwnsOptions::new().watch(mcr::WatchOptions::new().optional());
    let (_, seen) = world.run_with(maps().owns_with::<Secret>(&(), optional), record);
    seen.wait_for(1).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_cluster_that_is_away_wait_and_nothing_is_deleted() {
    let (mut world, a) = World::with_map();
    let tick = move |enqueue: mcr::Enqueue, stop: tokio_util::sync::CancellationToken| async move {
        let key = mcr::RequestKey::new(name("a"), mcr::ObjectKey::namespaced("ns", "x"));
        while stop.run_until_cancelled(sleep(1_000)).await.is_some() {
            enqueue.add(key.clone());
        }
        Ok(())
    };
    let (handle, seen) = world.run_with(maps().source(tick), record);
    seen.wait_for(1).await;
    world.suspend("a", &a);
    until_true(|| handle.status().clusters["a"].parked).await;
    let before = seen.len();
    sleep(10_000).await;
    assert_eq!(seen.len(), before);
    assert_eq!(handle.status().clusters["a"].ready, 1);
    world.add("a", &a, &[]);
    let all = seen.wait_for(before + 1).await;
    assert!(
        all.iter().all(|line| line == "cluster://a/ns/x live 1"),
        "{all:?}"
    );
    // An Unreachable cluster is parked in the same way.
    a.down(true);
    until_true(|| handle.status().clusters["a"].parked).await;
    a.down(false);
    until_true(|| !handle.status().clusters["a"].parked).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_runs_for_a_cluster_that_leaves_sees_its_token_and_is_then_aborted() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_secs(5));
    let a = world.join("a");
    a.put_map("ns/listens", "1");
    a.put_map("ns/hangs", "1");
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push("began");
        if request.name() == "hangs" {
            let _dropped = Dropped(seen);
            return std::future::pending::<Fallible>().await;
        }
        request.token().cancelled().await;
        seen.push("saw it");
        Err("stopped".into())
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(2).await;
    let cluster = world.cluster("a").await;
    world.remove("a");
    assert_eq!(seen.wait_for(3).await[2], "saw it");
    let left = Instant::now();
    assert!(handle.status().clusters.is_empty());
    cluster.wait_for(|_| false).await;
    assert_eq!(seen.all()[2..], ["saw it", "dropped"]);
    let took = left.elapsed().as_millis();
    assert!((4_900..6_000).contains(&took), "{took} ms");
    let counts = handle.status().counts;
    assert_eq!((counts.aborted, counts.errors), (1, 0));
    assert_eq!(a.watches(), 0);
    // A cluster joins again under the same name: its objects are new, and its earlier work stays dropped.
    let a = world.join("a");
    a.put_map("ns/listens", "2");
    seen.wait_for(5).await;
    sleep(10_000).await;
    assert_eq!(seen.len(), 5);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn leaving_is_no_deletion_and_queued_work_goes_along() {
    let (mut world, a) = World::with_a();
    for i in 0..20 {
        a.put_map(&format!("ns/{i}"), "1");
    }
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(line(&request));
        sleep(1_000).await;
        Fallible::Ok(())
    };
    let (handle, seen) = world.run_with(maps().cluster_concurrency(2), reconcile);
    seen.wait_for(2).await;
    world.remove("a");
    until_true(|| handle.status().clusters.is_empty()).await;
    sleep(30_000).await;
    assert_eq!(seen.len(), 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_cluster_under_the_same_name_shares_nothing_with_the_old_one() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_secs(3));
    let (old, new) = (ApiAccess::default(), ApiAccess::default());
    old.put_map("ns/both", "old");
    old.put_map("ns/only-old", "old");
    new.put_map("ns/both", "new");
    world.identify("a", &old, "1");
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(line(&request));
        if line(&request).ends_with("both live old") {
            std::future::pending::<()>().await;
        }
        Fallible::Ok(())
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(2).await;
    let first = world.cluster("a").await;
    world.identify("a", &new, "2");
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/both live new");
    assert_ne!(world.cluster("a").await.epoch(), first.epoch());
    sleep(60_000).await;
    assert_eq!(seen.len(), 3, "{:?}", seen.all());
    assert_eq!(handle.status().counts.aborted, 1);
    assert!(first.token().is_cancelled());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_share_watches_and_many_clusters_are_many_only_once() {
    let mut world = World::new();
    let (one, two) = (maps().owns::<Secret>(), Controller::<Secret>::new("secrets"));
    let (handle, seen) = world.run_with(one, record);
    world.run(two.build(keys, Arc::default()).unwrap());
    let apis: Vec<_> = (0..300)
        .map(|i| {
            let api = ApiAccess::default();
            api.put_map("ns/x", "1");
            world.add(&format!("c{i}"), &api, &[]);
            api
        })
        .collect();
    let mut all = seen.sorted(300).await;
    all.dedup();
    assert_eq!(all.len(), 300);
    until_true(|| apis.iter().all(|api| api.watches() == 2 && api.lists() == 2)).await;
    assert_eq!(handle.status().clusters.len(), 300);
    world.end().await;
    assert!(apis.iter().all(|api| api.watches() == 0));
}

/// Whether a Secret of the same name is in the cluster `other`.
async fn compare(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    let read = || -> Result<bool, BoxError> {
        let secrets = request.fleet.get("other")?.store::<Secret>()?;
        Ok(secrets.get(&request.key.object)?.is_some())
    };
    let read = read();
    seen.push(match &read {
        Ok(found) => format!("{found}"),
        Err(error) => format!("{error}"),
    });
    read.map(|_| ())
}

/// The gate of a request waits for the watches of its own cluster only.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_reads_another_cluster_before_its_list_is_retried_and_never_misled() {
    let mut world = World::new();
    let (a, other) = (world.join("a"), world.join("other"));
    other.put("secrets", "ns/x", json!({}));
    other.down(true);
    let watch = WatchRequest::of::<Secret>();
    let _watch = world.cluster("other").await.watch(watch, None).unwrap();
    a.put_map("ns/x", "1");
    let (_, seen) = world.run_with(maps(), compare);
    let first = seen.wait_for(1).await.remove(0);
    assert!(
        first.starts_with("cluster other: secrets is not listed yet"),
        "{first}"
    );
    other.down(false);
    until_true(|| seen.all().iter().any(|line| line == "true")).await;
    assert!(seen.all().iter().all(|line| line != "false"), "{:?}", seen.all());
    world.end().await;
}
