//! The ends of single reconciles and their effects: failures, panics, timeouts and requeues.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{
    ApiAccess, Seen, World,
    maps::{Fallible, line, maps, record},
    name, sleep, until_true,
};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Backoff, ClusterSelector, Request};
use mcr_testkit::log::Log;
use serde_json::json;
use tokio::time::Instant;
use tracing::Level;

#[tokio::test(start_paused = true)]
async fn reconciles_that_hang_in_some_clusters_do_not_delay_the_others() {
    let mut world = World::new();
    let hang: Vec<_> = (0..20).map(|i| world.join(&format!("hangs{i}"))).collect();
    for api in &hang {
        (0..50).for_each(|i| api.put_map(&format!("ns/{i}"), "1"));
    }
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        if request.cluster.name().starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        seen.push(request.key.to_string());
        Fallible::Ok(())
    };
    let (handle, seen) = world.run_with(maps().shutdown_grace(Duration::ZERO), reconcile);
    until_true(|| handle.status().queue.running == 160).await;
    let good = world.join("good");
    good.put_map("ns/x", "1");
    seen.wait_for(1).await;
    let asked = Instant::now();
    good.put_map("ns/x", "2");
    seen.wait_for(2).await;
    assert!(asked.elapsed() < Duration::from_millis(10));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_a_failure_and_back_off_grows() {
    let (mut world, _a) = World::with_map();
    let reconcile = |_: Request<ConfigMap>, began: Arc<Seen<Instant>>| async move {
        began.push(Instant::now());
        std::future::pending::<Fallible>().await
    };
    let backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
        jitter: 0.0,
    };
    let controller = maps().timeout(Duration::from_secs(2)).backoff(backoff);
    let (handle, began) = world.run_with(controller, reconcile);
    let all = began.wait_for(4).await;
    let gaps = all.windows(2).map(|pair| (pair[1] - pair[0]).as_millis() / 100);
    assert_eq!(gaps.collect::<Vec<_>>(), [30, 40, 60]);
    assert_eq!(handle.status().counts.timeouts, 3);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_run_leads_to_another_run_after_it() {
    let (mut world, a) = World::with_map();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(format!("begin {}", line(&request)));
        sleep(1_000).await;
        seen.push("end");
        Fallible::Ok(())
    };
    let (_, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(1).await;
    a.put_map("ns/x", "2");
    a.put_map("ns/x", "3");
    let (first, second) = ("begin cluster://a/ns/x live 1", "begin cluster://a/ns/x live 3");
    assert_eq!(seen.wait_for(4).await, [first, "end", second, "end"]);
    sleep(5_000).await;
    assert_eq!(seen.len(), 4);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeues_come_on_time_and_debounce_waits_for_quiet() {
    let (mut world, a) = World::with_map();
    let reconcile = |_: Request<ConfigMap>, began: Arc<Seen<Instant>>| async move {
        began.push(Instant::now());
        Fallible::Ok(Action::requeue(Duration::from_secs(30)))
    };
    let (_, began) = world.run_with(maps().debounce(Duration::from_secs(1)), reconcile);
    let all = began.wait_for(2).await;
    assert_eq!((all[1] - all[0]).as_secs(), 30);
    for i in 0..8 {
        a.put_map("ns/x", &i.to_string());
        sleep(500).await;
    }
    assert_eq!(began.len(), 2);
    began.wait_for(3).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_planned_requeue_ends_with_its_object() {
    let (mut world, a) = World::with_map();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(line(&request));
        Fallible::Ok(Action::requeue(Duration::from_secs(30)))
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(3).await;
    a.delete("configmaps", "ns/x");
    seen.wait_for(4).await;
    sleep(300_000).await;
    assert_eq!(seen.all()[3..], ["cluster://a/ns/x deleted 1"]);
    let status = &handle.status().clusters[&name("a")];
    assert_eq!((status.ready, status.delayed, status.running), (0, 0, 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cant_be_decoded_is_reported_once_and_reconciled_when_it_is_mended() {
    let (mut world, a) = World::with_a();
    a.put("configmaps", "ns/x", json!({"data": 5}));
    a.put_map("ns/y", "1");
    let (handle, seen) = world.run_with(maps(), record);
    assert_eq!(seen.wait_for(1).await, ["cluster://a/ns/y live 1"]);
    sleep(60_000).await;
    assert_eq!(handle.status().counts.undecodable, 1);
    a.put_map("ns/x", "2");
    assert_eq!(seen.wait_for(2).await[1], "cluster://a/ns/x live 2");
    // An undecodable object is not deleted. If it is deleted, its request has `Deleted` nevertheless.
    a.put("configmaps", "ns/x", json!({"data": 5}));
    until_true(|| handle.status().counts.undecodable == 2).await;
    a.delete("configmaps", "ns/x");
    assert_eq!(seen.wait_for(3).await[2], "cluster://a/ns/x deleted ?");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_not_found_ends_its_own_request_and_retries_others() {
    let (mut world, a) = World::with_a();
    a.put_map("ns/own", "1");
    a.put_map("ns/other", "1");
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(request.name());
        let mut not_found = request.fleet.get("elsewhere").unwrap_err();
        if request.name() == "own" {
            not_found.name = "a".into();
        }
        Err::<(), _>(anyhow::Error::from(not_found).context("could not copy"))
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(5).await;
    assert_eq!(seen.all().iter().filter(|name| *name == "own").count(), 1);
    let counts = handle.status().counts;
    assert!(
        counts.errors >= 3 && counts.errors < counts.reconciles,
        "{counts:?}"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_still_runs_for_a_cluster_that_was_released_is_not_run_beside_when_it_is_taken_in_again() {
    let mut world = World::new();
    let a = ApiAccess::default();
    a.put_map("ns/x", "1");
    world.add("a", &a, &[("env", "prod")]);
    // The reconciler ignores its token, as many do.
    let reconcile = |_: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push("begin");
        sleep(4_000).await;
        seen.push("end");
        Fallible::Ok(())
    };
    let controller = maps().clusters(ClusterSelector::label("env", "prod"));
    let (handle, seen) = world.run_with(controller, reconcile);
    seen.wait_for(1).await;
    world.add("a", &a, &[("env", "dev")]);
    until_true(|| handle.status().clusters.is_empty()).await;
    world.add("a", &a, &[("env", "prod")]);
    until_true(|| !handle.status().clusters.is_empty()).await;
    assert_eq!(seen.wait_for(4).await, ["begin", "end", "begin", "end"]);
    world.end().await;
}

/// The dropped value belongs to the user, and its drop may panic.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("as it is meant to");
    }
}

#[tokio::test(start_paused = true)]
async fn panics_are_failures_wherever_they_come() {
    let (mut world, a) = World::with_a();
    for key in ["ns/first", "ns/later", "ns/never"] {
        a.put_map(key, "1");
    }
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        let panics = |when| request.name() == when && request.attempt == 0;
        assert!(!panics("first"), "as it is meant to");
        if request.name() != "never" {
            sleep(10).await;
        }
        assert!(!panics("later"), "as it is meant to");
        seen.push(format!("{} {}", request.name(), request.attempt));
        Fallible::Ok(())
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    assert_eq!(seen.sorted(3).await, ["first 1", "later 1", "never 0"]);
    until_true(|| handle.status().counts.reconciles == 5).await;
    assert_eq!(handle.status().counts.panics, 2);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_a_run_is_aborted_ends_nothing_else() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_millis(50));
    let (a, b) = (world.join("a"), world.join("b"));
    a.put_map("ns/x", "1");
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(request.key.to_string());
        if request.cluster.name().as_str() == "a" {
            let _panics = Panics;
            thread::sleep(Duration::from_millis(300));
            std::future::pending::<()>().await;
        }
        Fallible::Ok(())
    };
    let (handle, seen) = world.run_with(maps(), reconcile);
    seen.wait_for(1).await;
    world.remove("a");
    until_true(|| handle.status().counts.aborted == 1).await;
    b.put_map("ns/y", "1");
    seen.wait_for(2).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_what_a_timeout_drops_is_a_failure() {
    let mut world = World::new();
    world.join("a").put_map("ns/x", "1");
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        if request.attempt == 0 {
            let _panics = Panics;
            std::future::pending::<()>().await;
        }
        Fallible::Ok(())
    };
    let controller = maps().timeout(Duration::from_millis(10));
    let handle = world.run(controller.build(reconcile, Arc::new(())).unwrap());
    until_true(|| handle.status().counts.successes == 1).await;
    let counts = handle.status().counts;
    assert_eq!((counts.panics, counts.aborted), (1, 0), "{counts:?}");
    world.end().await;
}

#[tokio::test]
async fn a_thousand_that_dont_wait_leave_others_their_turn() {
    let (mut world, a) = World::with_a();
    (0..1_000).for_each(|i| a.put_map(&format!("ns/{i}"), "1"));
    let runs = Arc::new(AtomicUsize::new(0));
    let reconcile = |_: Request<ConfigMap>, runs: Arc<AtomicUsize>| async move {
        runs.fetch_add(1, Ordering::Relaxed);
        Fallible::Ok(())
    };
    let controller = maps().concurrency(1_000).cluster_concurrency(1_000);
    world.run(controller.build(reconcile, runs.clone()).unwrap());
    let (mut before, mut most) = (0, 0);
    while before < 1_000 {
        tokio::task::yield_now().await;
        let now = runs.load(Ordering::Relaxed);
        most = most.max(now - before);
        before = now;
    }
    assert!(
        (1..=256).contains(&most),
        "{most} between two turns of another task"
    );
    world.end().await;
}

/// All requests are in the queue before the start, so that no new request wakes a task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_keeps_its_thread_stops_no_other() {
    let (mut world, a) = World::with_a();
    (0..200).for_each(|i| a.put_map(&format!("ns/{i}"), "1"));
    let reconcile = |_: Request<ConfigMap>, all: Arc<(Mutex<usize>, Condvar)>| async move {
        let (count, came) = &*all;
        let mut count = count.lock().unwrap();
        *count += 1;
        came.notify_all();
        if *count == 1 {
            // The first reconcile blocks its thread until all others have ended.
            let others = came.wait_timeout_while(count, Duration::from_secs(60), |count| *count < 200);
            assert!(!others.unwrap().1.timed_out());
        }
        Fallible::Ok(())
    };
    let handle = world.run(maps().build(reconcile, Arc::default()).unwrap());
    until_true(|| handle.status().counts.successes == 200).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_has_nothing_to_do_stops_without_grace_or_complaint() {
    let log = Log::of_this_thread(Level::INFO);
    let mut world = World::new();
    world.join("a").put_map("ns/x", "1");
    let reconcile = |_: Request<ConfigMap>, _: Arc<()>| async { Fallible::Ok(()) };
    let controller = maps().shutdown_grace(Duration::ZERO);
    let handle = world.run(controller.build(reconcile, Arc::new(())).unwrap());
    until_true(|| handle.status().counts.successes == 1).await;
    world.end().await;
    let log = log.text();
    assert!(log.contains("cluster is gone") && !log.contains("WARN"), "{log}");
}
