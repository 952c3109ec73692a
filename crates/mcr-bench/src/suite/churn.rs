//! `churn`: hundreds of clusters leave and join each second. Measures the effect on the other clusters, and the memory
//! that is left behind.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};

use super::{Session, beats, latency::Latency};
use crate::{
    driver::{Job, Running, Subject, sim::Sim},
    row::Row,
    stats,
    subject::message::now,
};

const STABLE: usize = 100;
/// The number of clusters that leave each second, and of those that join.
const MOVING: usize = 200;
const OBJECTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the suite. The other subjects don't follow their kubeconfig, so only mcr has rows.
///
/// # Errors
///
/// When the simulator does not start, or mcr does not sync.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for _ in session.order_of(run, |subject| subject == Subject::Mcr) {
            for row in one(session).await.context("churn")? {
                session.ran(run, row, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

/// Lets the clusters that move be those of this half, and the others leave.
async fn turn(sim: &mut Sim, half: usize) -> Result<()> {
    let from = STABLE + (half % 2) * MOVING;
    sim.command(&format!("contexts {STABLE} {from} {}", from + MOVING))
        .await?;
    Ok(())
}

async fn one(session: &Session<'_>) -> Result<[Row; 2]> {
    let seconds = session.options.seconds.unwrap_or(120);
    let mut sim = Sim::start(&session.programs, STABLE + 2 * MOVING, OBJECTS).await?;
    turn(&mut sim, 0).await?;
    let kubeconfig = sim.kubeconfig().to_owned();
    let job = Job {
        heap: true,
        ..Job::new(&kubeconfig, (STABLE + MOVING) * OBJECTS)
    };
    let mut process = Running::subject(Subject::Mcr, &session.programs, &job)?;
    process.synced(Duration::from_secs(120)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let row = |variant: &str| Row {
        variant: variant.to_owned(),
        ..Row::new("churn", "mcr", STABLE + MOVING, OBJECTS)
    };
    let writes = usize::try_from(1000 / PAUSE.as_millis())?;
    let quiet = beats(&mut sim, &mut process, 0..STABLE, 10 * writes, PAUSE).await?;

    let before = sim.counts().await?;
    let (mut heaps, mut seen) = (Vec::new(), Vec::new());
    let mut ticks = tokio::time::interval(PAUSE);
    let mut written = BTreeMap::new();
    for second in 0..seconds {
        turn(&mut sim, second + 1).await?;
        for _ in 0..writes {
            ticks.tick().await;
            let seq = written.len() as u64 + 1;
            written.insert(seq, now());
            sim.command(&format!("beat {seq} 0 {STABLE}")).await?;
        }
        // Fetched at once, because beats that the subject keeps for the driver would count in its heap.
        seen.extend(process.beats().await?);
        heaps.push((second as f64, process.heap().await? as f64));
    }
    let joined = sim.counts().await?.lists - before.lists;

    // After another turn and some time, the subject must have seen all clusters.
    tokio::time::sleep(Duration::from_secs(3)).await;
    seen.extend(process.beats().await?);
    let latency = Latency::of(&seen, STABLE, &written);
    let before_last = process.seen().await?;
    turn(&mut sim, seconds + 1).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let more = usize::try_from(process.seen().await? - before_last)?;
    let missed = latency.missed + (MOVING * OBJECTS).saturating_sub(more);
    process.stop().await?;

    // Leaves out the first quarter, in which buffers still grow.
    let later: Vec<(f64, f64)> = heaps.iter().skip(heaps.len() / 4).copied().collect();
    let mean = stats::median(&later.iter().map(|(_, heap)| *heap).collect::<Vec<_>>());
    let growth = stats::slope(&later)
        .zip(mean)
        .map(|(slope, mean)| 60.0 * 100.0 * slope / mean);
    let churning = Row {
        missed: Some(missed as f64),
        lists: Some(joined as f64 / seconds.max(1) as f64),
        value: growth,
        ..latency.into_row(row("churning"))
    };
    Ok([quiet.into_row(row("quiet")), churning])
}
