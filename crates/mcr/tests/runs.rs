//! The ends of single reconciles and their effects: failures, panics, timeouts and requeues.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, Backoff, ClusterSelector, Request};
use serde_json::json;
use support::{
    Seen, World,
    maps::{Fallible, line, maps, record},
    sleep, until_true,
};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn reconciles_that_hang_in_some_clusters_do_not_delay_the_others() {
    let mut world = World::new();
    let hang: Vec<_> = (0..20).map(|i| world.join(&format!("hangs{i}"))).collect();
    for api in &hang {
        (0..50).for_each(|i| api.put_map(&format!("ns/{i}"), "1"));
    }
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        if request.cluster.name().starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        seen.push(request.key.to_string());
        Fallible::Ok(())
    };
    let handle = world.run(
        maps()
            .shutdown_grace(Duration::ZERO)
            .build(reconcile, Arc::new(seen.clone()))
            .unwrap(),
    );
    until_true(|| {
        handle
            .status()
            .clusters
            .values()
            .map(|cluster| cluster.running)
            .sum::<usize>()
            == 160
    })
    .await;
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
    let began: Seen<Instant> = Seen::default();
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
    let handle = world.run(controller.build(reconcile, Arc::new(began.clone())).unwrap());
    let all = began.wait_for(4).await;
    let gaps: Vec<u64> = all
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis() as u64 / 100)
        .collect();
    assert_eq!(gaps, [30, 40, 60]);
    assert_eq!(handle.status().counts.timeouts, 3);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_run_leads_to_another_run_after_it() {
    let (mut world, a) = World::with_map();
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(format!("begin {}", line(&request)));
        sleep(1_000).await;
        seen.push("end");
        Fallible::Ok(())
    };
    world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
    seen.wait_for(1).await;
    a.put_map("ns/x", "2");
    a.put_map("ns/x", "3");
    assert_eq!(
        seen.wait_for(4).await,
        [
            "begin cluster://a/ns/x live 1",
            "end",
            "begin cluster://a/ns/x live 3",
            "end"
        ]
    );
    sleep(5_000).await;
    assert_eq!(seen.len(), 4);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn requeues_come_on_time_and_debounce_waits_for_quiet() {
    let (mut world, a) = World::with_map();
    let began: Seen<Instant> = Seen::default();
    let reconcile = |_: Request<ConfigMap>, began: Arc<Seen<Instant>>| async move {
        began.push(Instant::now());
        Fallible::Ok(Action::requeue(Duration::from_secs(30)))
    };
    world.run(
        maps()
            .debounce(Duration::from_secs(1))
            .build(reconcile, Arc::new(began.clone()))
            .unwrap(),
    );
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
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(line(&request));
        Fallible::Ok(Action::requeue(Duration::from_secs(30)))
    };
    let handle = world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
    seen.wait_for(3).await;
    a.delete("configmaps", "ns/x");
    seen.wait_for(4).await;
    sleep(300_000).await;
    assert_eq!(seen.all()[3..], ["cluster://a/ns/x deleted 1"]);
    let status = &handle.status().clusters[&support::name("a")];
    assert_eq!((status.ready, status.delayed, status.running), (0, 0, 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cant_be_decoded_is_reported_once_and_reconciled_when_it_is_mended() {
    let (mut world, a) = World::with_a();
    a.put("configmaps", "ns/x", json!({"data": 5}));
    a.put_map("ns/y", "1");
    let seen = Seen::default();
    let handle = world.run(maps().build(record, Arc::new(seen.clone())).unwrap());
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
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push(request.name());
        let mut not_found = request.fleet.get("elsewhere").unwrap_err();
        if request.name() == "own" {
            not_found.name = "a".into();
        }
        Err::<(), _>(anyhow::Error::from(not_found).context("could not copy"))
    };
    let handle = world.run(maps().build(reconcile, Arc::new(seen.clone())).unwrap());
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
    let a = support::ApiAccess::new(Default::default());
    a.put_map("ns/x", "1");
    world.add("a", &a, &[("env", "prod")]);
    let seen: Seen<String> = Seen::default();
    // The reconciler ignores its token, as many do.
    let reconcile = |_: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        seen.push("begin");
        sleep(4_000).await;
        seen.push("end");
        Fallible::Ok(())
    };
    let controller = maps().clusters(ClusterSelector::label("env", "prod"));
    let handle = world.run(controller.build(reconcile, Arc::new(seen.clone())).unwrap());
    seen.wait_for(1).await;
    world.add("a", &a, &[("env", "dev")]);
    until_true(|| handle.status().clusters.is_empty()).await;
    world.add("a", &a, &[("env", "prod")]);
    until_true(|| !handle.status().clusters.is_empty()).await;
    assert_eq!(seen.wait_for(4).await, ["begin", "end", "begin", "end"]);
    world.end().await;
}

/// With real time and threads: many changes of few keys, in several clusters that join and leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_ever_reconciled_twice_at_once() {
    let mut world = World::with_settings(|settings| settings.drain_grace = Duration::from_millis(50));
    let apis: Vec<_> = ["a", "b", "c"]
        .map(|cluster| (cluster, world.join(cluster)))
        .into();
    let running: Arc<Mutex<HashMap<mcr::RequestKey, usize>>> = Arc::default();
    let (overlaps, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    struct Running(Arc<Mutex<HashMap<mcr::RequestKey, usize>>>, mcr::RequestKey);
    impl Drop for Running {
        fn drop(&mut self) {
            *self.0.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
        }
    }
    let reconcile = {
        let (running, overlaps, runs) = (running.clone(), overlaps.clone(), runs.clone());
        move |request: Request<ConfigMap>, _: Arc<()>| {
            let (running, overlaps, runs) = (running.clone(), overlaps.clone(), runs.clone());
            async move {
                let count = {
                    let mut running = running.lock().unwrap();
                    let count = running.entry(request.key.clone()).or_default();
                    *count += 1;
                    *count
                };
                let _running = Running(running, request.key.clone());
                if count > 1 {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                let run = runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_micros(run as u64 % 7 * 300)).await;
                assert!(run % 11 != 0, "now and then");
                if run % 5 == 0 {
                    Fallible::<()>::Err("now and then".into())
                } else {
                    Ok(())
                }
            }
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        if !panic.to_string().contains("now and then") {
            eprintln!("{panic}");
        }
    }));
    world.run(maps().build(reconcile, Arc::new(())).unwrap());
    let begun = std::time::Instant::now();
    for round in 0.. {
        if round >= 400 && runs.load(Ordering::SeqCst) > 100 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{runs:?} after {round} rounds"
        );
        for (_, api) in &apis {
            api.put_map(&format!("ns/{}", round % 3), &round.to_string());
        }
        if round % 50 == 20 {
            world.remove(apis[round % 3].0);
        }
        if round % 50 == 22 {
            world.add(apis[(round - 2) % 3].0, &apis[(round - 2) % 3].1, &[]);
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    world.end().await;
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    assert!(running.lock().unwrap().values().all(|count| *count == 0));
}
