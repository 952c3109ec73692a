//! The dispatch of reconciles that wait and that do not wait, also while threads are blocked.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::{
        Arc, Barrier, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::Request;
use mcr_testkit::log::Log;
use support::{
    Seen, World,
    maps::{Fallible, maps},
    sleep, until_true,
};
use tokio::time::Instant;
use tracing::Level;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A reconcile that does not wait, in paused time: advances only the clock.
fn keeps_its_thread_for(time: Duration) {
    let polled = std::pin::pin!(tokio::time::advance(time)).now_or_never();
    assert_eq!(polled, None, "it goes on at once, and would then wait for others");
}

/// Reports its drop.
struct Leaves(Arc<Seen<String>>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.push("dropped");
    }
}

/// The dropped value belongs to the user, and its drop may panic.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("as it is meant to");
    }
}

/// A reconcile that blocks its thread while its cluster leaves, and awaits something only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_awaits_only_after_the_grace_period_is_aborted_at_that() {
    let mut world = World::with_settings(|settings| settings.drain_grace = millis(50));
    let a = world.join("a");
    a.put_map("ns/x", "1");
    let seen: Seen<String> = Seen::default();
    let reconcile = |_: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        let _leaves = Leaves(seen.clone());
        seen.push("begun");
        thread::sleep(millis(400));
        seen.push("awaits");
        std::future::pending::<Fallible>().await
    };
    let handle = world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
    seen.wait_for(1).await;
    world.remove("a");
    assert_eq!(seen.wait_for(3).await, ["begun", "awaits", "dropped"]);
    until_true(|| handle.status().counts.aborted == 1).await;
    assert_eq!(handle.status().queue.running, 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_awaits_within_the_grace_period_has_the_rest_of_it() {
    for leaves in [true, false] {
        let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_secs(60));
        let a = world.join("a");
        a.put_map("ns/x", "1");
        let seen: Seen<String> = Seen::default();
        let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
            seen.push("begun");
            thread::sleep(millis(200));
            request.token().cancelled().await;
            sleep(50).await;
            seen.push("ended");
            Fallible::Ok(())
        };
        let controller = maps().shutdown_grace(Duration::from_secs(60));
        let handle = world.run(controller.build(reconcile, Arc::new(seen.clone())).unwrap());
        seen.wait_for(1).await;
        if leaves {
            world.remove("a");
            seen.wait_for(2).await;
        }
        // Otherwise the controller stops meanwhile.
        world.end().await;
        assert_eq!(seen.all(), ["begun", "ended"]);
        let counts = handle.status().counts;
        assert_eq!((counts.aborted, counts.reconciles), (0, 1), "{counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_awaits_does_not_keep_the_controller_from_stopping() {
    let mut world = World::with_settings(|settings| settings.drain_grace = millis(50));
    let a = world.join("a");
    a.put_map("ns/x", "1");
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let reconcile = {
        let (begun, go) = (begun.clone(), go.clone());
        move |_: Request<ConfigMap>, _: Arc<()>| {
            let (begun, go) = (begun.clone(), go.clone());
            async move {
                begun.store(true, Ordering::SeqCst);
                while !go.load(Ordering::SeqCst) {
                    thread::sleep(millis(5));
                }
                Fallible::Ok(())
            }
        }
    };
    world.run(
        maps()
            .shutdown_grace(millis(50))
            .build(reconcile, Arc::new(()))
            .unwrap(),
    );
    until_true(|| begun.load(Ordering::SeqCst)).await;
    let ended = tokio::time::timeout(Duration::from_secs(60), world.end()).await;
    go.store(true, Ordering::SeqCst);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn panics_are_failures_wherever_they_come() {
    let (mut world, a) = World::with_a();
    ["ns/first", "ns/later", "ns/never"]
        .iter()
        .for_each(|key| a.put_map(key, "1"));
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        assert!(
            request.name() != "first" || request.attempt > 0,
            "as it is meant to"
        );
        if request.name() != "never" {
            sleep(10).await;
        }
        assert!(
            request.name() != "later" || request.attempt > 0,
            "as it is meant to"
        );
        seen.push(format!("{} {}", request.name(), request.attempt));
        Fallible::Ok(())
    };
    let handle = world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
    let mut all = seen.wait_for(3).await;
    all.sort();
    assert_eq!(all, ["first 1", "later 1", "never 0"]);
    until_true(|| handle.status().counts.reconciles == 5).await;
    assert_eq!(handle.status().counts.panics, 2);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_a_run_is_aborted_ends_nothing_else() {
    let mut world = World::with_settings(|settings| settings.drain_grace = millis(50));
    let (a, b) = (world.join("a"), world.join("b"));
    a.put_map("ns/x", "1");
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(request.key.to_string());
        if request.cluster.name().as_str() == "a" {
            let _panics = Panics;
            thread::sleep(millis(300));
            std::future::pending::<()>().await;
        }
        Fallible::Ok(())
    };
    let handle = world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
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
    let controller = maps().timeout(millis(10));
    let handle = world.run(controller.build(reconcile, Arc::new(())).unwrap());
    until_true(|| handle.status().counts.successes == 1).await;
    let counts = handle.status().counts;
    assert_eq!((counts.panics, counts.aborted), (1, 0), "{counts:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_counts_from_the_beginning_and_only_for_what_waits() {
    let (mut world, a) = World::with_a();
    ["ns/slow", "ns/waits"].iter().for_each(|key| a.put_map(key, "1"));
    let seen: Seen<(bool, Instant)> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<(bool, Instant)>>| async move {
        let waits = request.name() == "waits";
        if request.attempt == 0 {
            let began = Instant::now();
            keeps_its_thread_for(millis(700));
            if waits {
                seen.push((true, began));
                std::future::pending::<()>().await;
            }
        }
        seen.push((waits, Instant::now()));
        Fallible::Ok(())
    };
    let controller = maps().timeout(millis(600));
    let handle = world.run(controller.build(reconcile, Arc::new(seen.clone())).unwrap());
    let all = seen.wait_for(3).await;
    until_true(|| handle.status().counts.reconciles == 3).await;
    let counts = handle.status().counts;
    assert_eq!((counts.timeouts, counts.successes), (1, 2), "{counts:?}");
    let waited: Vec<Instant> = all
        .iter()
        .filter(|(waits, _)| *waits)
        .map(|(_, at)| *at)
        .collect();
    // It blocked for 700 ms, longer than its timeout, before it awaited. So it gets no further time.
    let took = waited[1] - waited[0];
    assert!(took >= millis(700) && took < millis(1_250), "{took:?}");
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
    let other = tokio::spawn({
        let runs = runs.clone();
        async move {
            let (mut before, mut most) = (0, 0);
            while before < 1_000 {
                tokio::task::yield_now().await;
                let now = runs.load(Ordering::Relaxed);
                most = most.max(now - before);
                before = now;
            }
            most
        }
    });
    let most = other.await.unwrap();
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
    let all = Arc::new((Mutex::new(0), Condvar::new()));
    let late = Arc::new(AtomicBool::new(false));
    let reconcile = {
        let late = late.clone();
        move |_: Request<ConfigMap>, all: Arc<(Mutex<usize>, Condvar)>| {
            let late = late.clone();
            async move {
                let (count, came) = &*all;
                let mut count = count.lock().unwrap();
                *count += 1;
                came.notify_all();
                if *count == 1 {
                    // The first reconcile blocks its thread until all others have ended.
                    let (_count, waited) = came
                        .wait_timeout_while(count, Duration::from_secs(60), |count| *count < 200)
                        .unwrap();
                    late.store(waited.timed_out(), Ordering::SeqCst);
                }
                Fallible::Ok(())
            }
        }
    };
    let handle = world.run(maps().build(reconcile, all).unwrap());
    until_true(|| handle.status().counts.successes == 200).await;
    assert!(!late.load(Ordering::SeqCst));
    world.end().await;
}

/// More blocking reconciles than threads, with `block_in_place`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_in_place_stops_no_other() {
    let (mut world, a) = World::with_a();
    (0..8).for_each(|i| a.put_map(&format!("ns/{i}"), "1"));
    let all = Arc::new(Barrier::new(8));
    let reconcile = |_: Request<ConfigMap>, all: Arc<Barrier>| async move {
        tokio::task::block_in_place(|| all.wait());
        Fallible::Ok(())
    };
    let handle = world.run(maps().build(reconcile, all).unwrap());
    tokio::time::timeout(
        Duration::from_secs(60),
        until_true(|| handle.status().counts.successes == 8),
    )
    .await
    .unwrap();
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
