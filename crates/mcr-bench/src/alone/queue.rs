//! Operations of the fair queue, without a runtime.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use mcr::queue::{Outcome, Priority, QueueConfig, QueueCore};
use tokio::time::Instant;

use super::Figures;
use crate::proc::Usage;

type Queue = QueueCore<Arc<str>, Arc<str>>;

/// Names similar to those of real fleets.
pub fn names(clusters: usize, keys: usize) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let cluster = |number| format!("/etc/fleet/kubeconfig+cluster-{number:05}").into();
    let key = |number: usize| format!("namespace-{}/object-{number:05}", number % 20).into();
    ((0..clusters).map(cluster).collect(), (0..keys).map(key).collect())
}

/// Pushes every key of every cluster, in turns over the clusters, and pops all. Returns their number.
pub fn push_and_pop(queue: &mut Queue, clusters: &[Arc<str>], keys: &[Arc<str>], now: Instant) -> usize {
    for key in keys {
        for cluster in clusters {
            queue.add(cluster, key.clone(), Priority::Live, now);
        }
    }
    let mut count = 0;
    while let Some(work) = queue.pop(now) {
        queue.done(&work, Outcome::Success { requeue_after: None }, now);
        count += 1;
    }
    count
}

/// A queue with these clusters engaged.
pub fn engaged(clusters: &[Arc<str>], now: Instant) -> Queue {
    let mut queue = QueueCore::new(QueueConfig::default().seed(1), now);
    for cluster in clusters {
        queue.engage(cluster.clone(), 1);
    }
    queue
}

fn rate(clusters: usize, keys: usize) -> Result<f64> {
    let now = Instant::now();
    let (clusters, keys) = names(clusters, keys);
    let mut queue = engaged(&clusters, now);
    // The first round allocates memory. Later rounds show the normal cost.
    push_and_pop(&mut queue, &clusters, &keys, now);
    // CPU time instead of real time, because other processes may use the core too.
    let cpu = || Ok::<_, anyhow::Error>(Usage::of(std::process::id())?.cpu);
    let begun = cpu()?;
    let mut count = 0;
    while cpu()? - begun < Duration::from_millis(1500) {
        count += push_and_pop(&mut queue, &clusters, &keys, now);
    }
    Ok(count as f64 / (cpu()? - begun).as_secs_f64())
}

/// Clusters and keys for the measurement of pushes and pops per second: the same number of items in ever more clusters.
pub const SHAPES: [(usize, usize); 4] = [(10, 10_000), (100, 1_000), (1_000, 100), (10_000, 10)];

pub(super) fn measure() -> Result<Figures> {
    SHAPES
        .iter()
        .map(|(clusters, keys)| Ok((clusters.to_string(), rate(*clusters, *keys)?)))
        .collect()
}
