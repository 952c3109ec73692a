//! The suites, each in its own file.

pub mod churn;
pub mod discovery;
pub mod fairness;
pub mod fleet;
pub mod isolation;
pub mod kcp;
pub mod kinds;
pub mod large;
pub mod latency;
pub mod queue;
mod round;
pub mod shared_scope;
pub mod store;
pub mod sync;
pub mod update;
pub mod work;
pub mod workspaces;

use std::{collections::BTreeMap, ops::Range, time::Duration};

use anyhow::Result;
use latency::Latency;

use crate::{
    driver::{Running, sim::Sim},
    subject::message::now,
};

pub use round::{Options, Session};

/// Writes to each of these clusters as often, and sees when their reconcilers hear of it.
async fn beats(
    sim: &mut Sim,
    process: &mut Running,
    clusters: Range<usize>,
    writes: usize,
    pause: Duration,
) -> Result<Latency> {
    let mut ticks = tokio::time::interval(pause);
    let mut written = BTreeMap::new();
    for seq in (1..).take(writes) {
        ticks.tick().await;
        written.insert(seq, now());
        let command = format!("beat {seq} {} {}", clusters.start, clusters.end);
        sim.command(&command).await?;
    }
    // A sighting after this pause counts as missed.
    tokio::time::sleep(pause.max(Duration::from_millis(900))).await;
    let seen = process.beats().await?;
    Ok(Latency::of(&seen, clusters.len(), &written))
}
