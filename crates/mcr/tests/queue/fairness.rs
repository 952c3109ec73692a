//! The documented bounds on waiting times, among clusters and inside one cluster.

use mcr::queue::{Outcome, Priority, QueueConfig, QueueCore};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

proptest! {
    /// Each active cluster is served within one weighted round, whatever joins and leaves.
    #[test]
    fn every_active_cluster_is_served_within_a_round(
        weights in prop::collection::vec(1u32..5, 2..12),
        arrivals in prop::collection::vec((0usize..12, 1u32..30), 1..60),
    ) {
        let now = Instant::now();
        let mut queue = QueueCore::new(QueueConfig::default(), now);
        for (cluster, weight) in weights.iter().enumerate() {
            queue.engage(cluster, 1);
            queue.set_weight(&cluster, *weight);
        }
        let round: u32 = weights.iter().sum();
        let mut waited = vec![0; weights.len()];
        let mut backlog = vec![0u32; weights.len()];
        let mut key = 0u32;
        let mut arrivals = VecDeque::from(arrivals);
        loop {
            if let Some((cluster, items)) = arrivals.pop_front() {
                let cluster = cluster % weights.len();
                for _ in 0..items {
                    key += 1;
                    queue.add(&cluster, key, Priority::Live, now);
                }
                backlog[cluster] += items;
            }
            let Some(work) = queue.pop(now) else { break };
            backlog[work.cluster] -= 1;
            for cluster in 0..weights.len() {
                waited[cluster] = if cluster == work.cluster || backlog[cluster] == 0 { 0 } else { waited[cluster] + 1 };
                prop_assert!(waited[cluster] < round, "cluster {cluster} waited {} of {round}", waited[cluster]);
            }
        }
        prop_assert!(backlog.iter().all(|left| *left == 0));
    }

    /// The two documented bounds on waiting inside a cluster, under arrivals that favour others.
    #[test]
    fn the_ageing_bounds_hold(
        ops in prop::collection::vec(
            (0u32..80, prop::sample::select(Priority::ALL.to_vec()), 0u64..20, prop::bool::weighted(0.6)), 1..600),
    ) {
        const AGE: u64 = 50;
        let start = Instant::now();
        let mut queue = QueueCore::new(QueueConfig::default().age_after(Duration::from_millis(AGE)), start);
        queue.engage("a", 1);
        let mut now = 0;
        let mut dispatches = 0u64;
        // Ready items in the order in which they became ready: key, time, and once aged, the dispatch by which it must run.
        let mut ready: Vec<(u32, u64, Option<u64>)> = Vec::new();
        // The expected lanes, to know the first item of each class, and the dispatch since which it has been first.
        let mut lanes: [VecDeque<u32>; 3] = Default::default();
        let mut first_since: [(Option<u32>, u64); 3] = [(None, 0); 3];
        for (key, priority, pass, add) in ops {
            now += pass;
            let at = start + Duration::from_millis(now);
            if add {
                queue.add(&"a", key, priority, at);
                if !ready.iter().any(|item| item.0 == key) {
                    ready.push((key, now, None));
                }
                let old = lanes.iter().position(|lane| lane.contains(&key));
                if old.is_none_or(|old| old < priority as usize) {
                    lanes.iter_mut().for_each(|lane| lane.retain(|other| *other != key));
                    lanes[priority as usize].push_back(key);
                }
            } else if let Some(work) = queue.pop(at) {
                queue.done(&work, Outcome::Success { requeue_after: None }, at);
                dispatches += 1;
                let place = ready.iter().position(|item| item.0 == work.key).unwrap();
                ready.remove(place);
                lanes.iter_mut().for_each(|lane| lane.retain(|other| *other != work.key));
            }
            for (class, lane) in lanes.iter().enumerate() {
                if first_since[class].0 != lane.front().copied() {
                    first_since[class] = (lane.front().copied(), dispatches);
                }
                let waited = dispatches - first_since[class].1;
                prop_assert!(lane.is_empty() || waited < 28, "the first of class {class} waited {waited}");
            }
            for (older, (key, since, deadline)) in ready.iter_mut().enumerate() {
                if now - *since >= AGE {
                    let deadline = *deadline.get_or_insert(dispatches + 4 * (older as u64 + 1));
                    prop_assert!(dispatches < deadline, "aged item {key} was not dispatched in time");
                }
            }
        }
    }
}

/// Promise 10, for the decisions of the queue: the backlog of one cluster does not delay the others.
#[test]
fn a_cluster_with_a_hundred_times_the_items_delays_nobody_by_more_than_a_round() {
    let now = Instant::now();
    let mut queue = QueueCore::new(QueueConfig::default(), now);
    (0..100).for_each(|cluster| assert_eq!(queue.engage(cluster, 1), 0));
    for key in 0..10_000 {
        queue.add(&0, key, Priority::Live, now);
    }
    for cluster in 1..100 {
        (0..100).for_each(|key| assert!(queue.add(&cluster, key, Priority::Live, now)));
    }
    let mut last = [0; 100];
    let mut served = [0; 100];
    for position in 1..=10_000 {
        let work = queue.pop(now).unwrap();
        let cluster = work.cluster as usize;
        assert!(
            position - last[cluster] <= 100,
            "cluster {cluster} waited {}",
            position - last[cluster]
        );
        last[cluster] = position;
        served[cluster] += 1;
    }
    assert_eq!(served, [100; 100], "all share alike while all have work");
    assert_eq!(queue.len(), 9_900);
    // A late event of a quiet cluster is dispatched second, before thousands of waiting items.
    queue.add(&50, 1000, Priority::Initial, now);
    assert!((0..2).any(|_| queue.pop(now).unwrap().cluster == 50));
}
