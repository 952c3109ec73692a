//! The suites: what is measured, one file each.

pub mod churn;
pub mod fairness;
pub mod fleet;
pub mod isolation;
pub mod latency;
pub mod queue;
mod round;
pub mod shared_scope;
pub mod store;
pub mod update;

use std::{ops::Range, time::Duration};

use anyhow::Result;
use latency::Latency;

use crate::driver::{Running, sim::Sim};

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
    for seq in 1..=writes {
        ticks.tick().await;
        sim.command(&format!("beat {seq} {} {}", clusters.start, clusters.end))
            .await?;
    }
    // What comes later than this is missed.
    tokio::time::sleep(pause.max(Duration::from_millis(500))).await;
    let seen = process.beats().await?;
    Ok(Latency::of(&seen, clusters.len() * writes, |sighting| {
        Some(sighting.sent)
    }))
}
