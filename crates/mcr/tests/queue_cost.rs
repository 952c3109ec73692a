//! The cost of queue operations. It prints figures and asserts nothing, because machines differ:
//! `cargo test --release -p mcr --test queue_cost -- --ignored --nocapture --test-threads 1`

#![allow(clippy::unwrap_used)]

use mcr::queue::{FairQueue, Outcome, Priority, QueueConfig, QueueCore};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const OK: Outcome = Outcome::Success { requeue_after: None };

/// Resident memory of this process in bytes; 0 where there is no /proc.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

fn per(what: &str, count: usize, work: impl FnOnce()) {
    let start = std::time::Instant::now();
    work();
    let each = start.elapsed().as_nanos() as f64 / count as f64;
    println!("  {what:<44} {each:>8.0} ns");
}

fn measure(clusters: usize, items: usize) {
    let total = clusters * items;
    println!("{clusters} clusters x {items} items = {total}");
    let names: Vec<Arc<str>> = (0..clusters).map(|c| format!("cluster-{c:05}").into()).collect();
    let keys: Vec<Arc<str>> = (0..items)
        .map(|k| format!("namespace-{}/object-{k:07}", k % 50).into())
        .collect();
    let now = Instant::now();
    let later = now + Duration::from_secs(3);
    let mut queue: QueueCore<Arc<str>, Arc<str>> = QueueCore::new(QueueConfig::default(), now);
    per("engage", clusters, || {
        names
            .iter()
            .for_each(|name| assert_eq!(queue.engage(name.clone(), 1), 0))
    });
    // Clusters alternate, as in a fleet. That is also the worst case for the caches of the CPU.
    let each = |f: &mut dyn FnMut(&Arc<str>, &Arc<str>)| {
        keys.iter().for_each(|k| names.iter().for_each(|n| f(n, k)))
    };
    per("add, new", total, || {
        each(&mut |n, k| assert!(queue.add(n, k.clone(), Priority::Initial, now)))
    });
    per("add, merged", total, || {
        each(&mut |n, k| assert!(queue.add(n, k.clone(), Priority::Initial, now)))
    });
    per("add, promoted", total, || {
        each(&mut |n, k| assert!(queue.add(n, k.clone(), Priority::Live, now)))
    });
    let mut works = Vec::with_capacity(1);
    per("pop + done", total, || {
        while let Some(work) = queue.pop(later) {
            works.push(work);
            works
                .drain(..)
                .for_each(|work| assert!(queue.done(&work, OK, later)));
        }
    });
    per("add_after", total, || {
        each(&mut |n, k| assert!(queue.add_after(n, k.clone(), Priority::Live, Duration::from_secs(9), now)))
    });
    per("pop (delayed, all due) + done as retry", total, || {
        let at = now + Duration::from_secs(9);
        for _ in 0..total {
            let work = queue.pop(at).unwrap();
            assert!(queue.done(&work, Outcome::RetryAfter(Duration::from_secs(60)), at));
        }
    });
    let start = std::time::Instant::now();
    assert_eq!(queue.disengage(&names[0]), items);
    println!(
        "  {:<44} {:>8.3} ms",
        format!("disengage a cluster with {items} items"),
        start.elapsed().as_secs_f64() * 1e3
    );
}

#[test]
#[ignore = "figures, for release builds"]
fn the_core() {
    measure(1, 100_000);
    measure(100, 1_000);
    measure(1_000, 1_000);
    measure(5_000, 20);
}

/// Run it alone, because it would reuse the heap of another test: `... -- --ignored --nocapture --exact memory`
#[test]
#[ignore = "figures, for release builds"]
fn memory() {
    let (clusters, items) = (1_000u32, 1_000u32);
    let now = Instant::now();
    let mut queue: QueueCore<u32, Arc<str>> = QueueCore::new(QueueConfig::default(), now);
    let keys: Vec<Arc<str>> = (0..items)
        .map(|k| format!("namespace/object-{k}").into())
        .collect();
    let mut last = resident();
    let mut show = |what: &str, count: u32| {
        let grown = resident().saturating_sub(last);
        last = resident();
        println!("{what:<60} {:>6} B each", grown / u64::from(count));
    };
    (0..clusters).for_each(|cluster| assert_eq!(queue.engage(cluster, 1), 0));
    show("an engaged cluster", clusters);
    for cluster in 0..clusters {
        keys.iter()
            .for_each(|key| assert!(queue.add(&cluster, key.clone(), Priority::Live, now)));
    }
    show(
        "a queued item, without the heap of its key (an Arc<str>)",
        clusters * items,
    );
    while let Some(work) = queue.pop(now) {
        queue.done(&work, Outcome::RetryAfter(Duration::from_secs(1)), now);
    }
    show("more for a delayed one", clusters * items);
}

#[tokio::test]
#[ignore = "figures, for release builds"]
async fn the_handle() {
    let queue: FairQueue<u32, u32> = FairQueue::new(QueueConfig::default());
    (0..100).for_each(|cluster| assert_eq!(queue.engage(cluster, 1), 0));
    const TOTAL: u32 = 100_000;
    println!("handle, 100 clusters x 1000 items");
    per("add", TOTAL as usize, || {
        (0..TOTAL).for_each(|k| assert!(queue.add(&(k % 100), k, Priority::Live)))
    });
    let start = std::time::Instant::now();
    for _ in 0..TOTAL {
        let work = queue.next().await.unwrap();
        queue.done(&work, OK);
    }
    println!(
        "  {:<44} {:>8.0} ns",
        "next + done",
        start.elapsed().as_nanos() as f64 / f64::from(TOTAL)
    );
}
