//! `churn`, `isolation` and `fairness`: the latency of undisturbed clusters while others come and go, fail, or are busy.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use anyhow::{Context, Result};
use tokio::time::{interval, sleep};

use super::latency::Latency;
use crate::{
    driver::{Job, Running, Servers, Subject},
    row::{Figure, Row},
    run::{Session, Turn},
    simulator::{FAULTS, SimArgs},
    stats,
    subject::message::now,
};

/// The pause between two writes to a cluster.
const PAUSE: Duration = Duration::from_millis(100);
const WRITES_A_SECOND: usize = 10;

/// The longest that a subject may take to sync.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes to each of these clusters as often, and measures the time until their reconcilers see it.
async fn beats(
    sim: &mut Servers,
    process: &mut Running,
    clusters: Range<usize>,
    writes: usize,
) -> Result<Latency> {
    let mut ticks = interval(PAUSE);
    let mut written = BTreeMap::new();
    for seq in (1..).take(writes) {
        ticks.tick().await;
        written.insert(seq, now());
        let command = format!("beat {seq} {} {}", clusters.start, clusters.end);
        sim.command(&command).await?;
    }
    // A write that is seen after this pause counts as missed.
    sleep(Duration::from_millis(900)).await;
    let seen = process.beats().await?;
    Ok(Latency::of(&seen, clusters.len(), &written))
}

const STABLE: usize = 100;
/// The number of clusters that leave each second, and of those that join.
const MOVING: usize = 200;
const OBJECTS: usize = 5;

/// Hundreds of clusters leave and join each second. The other subjects don't follow their kubeconfig, so only mcr has rows.
pub(super) async fn churn(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let row = Row::new("churn", "", STABLE + MOVING, OBJECTS);
    session.subjects(row, &[Subject::Mcr], churning).await
}

/// Lets the clusters that move be those of this half, and the others leave.
async fn turn(sim: &mut Servers, half: usize) -> Result<()> {
    let from = STABLE + (half % 2) * MOVING;
    let command = format!("contexts {STABLE} {from} {}", from + MOVING);
    sim.command(&command).await.map(drop)
}

async fn churning(session: &Session<'_>, of: Turn) -> Result<Vec<Row>> {
    let seconds = session.options.seconds.unwrap_or(120);
    let args = SimArgs::new(STABLE + 2 * MOVING, OBJECTS);
    let mut sim = Servers::sim(&session.programs, args).await?;
    turn(&mut sim, 0).await?;
    let kubeconfig = sim.kubeconfig.clone();
    let job = Job {
        heap: true,
        ..Job::new(&kubeconfig, (STABLE + MOVING) * OBJECTS)
    };
    let mut process = session.start(of.subject, &job, LIMIT).await?;
    sleep(Duration::from_secs(1)).await;
    let quiet = beats(&mut sim, &mut process, 0..STABLE, 10 * WRITES_A_SECOND).await?;

    let lists = async |sim: &mut Servers| anyhow::Ok(sim.counts().await?.unwrap_or_default().lists);
    let lists_before = lists(&mut sim).await?;
    let (mut heaps, mut seen) = (Vec::new(), Vec::new());
    let mut ticks = interval(PAUSE);
    let mut written = BTreeMap::new();
    for second in 0..seconds {
        turn(&mut sim, second + 1).await?;
        for _ in 0..WRITES_A_SECOND {
            ticks.tick().await;
            let seq = written.len() as u64 + 1;
            written.insert(seq, now());
            sim.command(&format!("beat {seq} 0 {STABLE}")).await?;
        }
        // Fetched at once, because beats that the subject keeps for the driver would count in its heap.
        seen.extend(process.beats().await?);
        heaps.push((second as f64, process.heap().await? as f64));
    }
    let joined = lists(&mut sim).await? - lists_before;

    // After another turn and some time, the subject must have seen all clusters.
    sleep(Duration::from_secs(3)).await;
    seen.extend(process.beats().await?);
    let mut latency = Latency::of(&seen, STABLE, &written);
    let before_last = process.seen().await?;
    turn(&mut sim, seconds + 1).await?;
    sleep(Duration::from_secs(8)).await;
    let more = usize::try_from(process.seen().await? - before_last)?;
    latency.missed += (MOVING * OBJECTS).saturating_sub(more);
    process.stop().await?;

    // Leaves out the first quarter, in which buffers still grow.
    let later: Vec<(f64, f64)> = heaps.iter().skip(heaps.len() / 4).copied().collect();
    let mean = stats::median(&later.iter().map(|(_, heap)| *heap).collect::<Vec<_>>());
    let growth = stats::slope(&later).zip(mean);
    let growth = growth.map(|(slope, mean)| 60.0 * 100.0 * slope / mean);
    let row = |variant: &str| of.row.clone().variant(variant);
    let churning = latency.into_row(row("churning")).with(Figure::Value, growth);
    let churning = churning.with(Figure::Lists, joined as f64 / seconds.max(1) as f64);
    Ok(vec![quiet.into_row(row("quiet")), churning])
}

/// A fifth of the clusters fail.
pub(super) async fn isolation(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(100);
    let row = Row::new("isolation", "", clusters, session.options.objects.unwrap_or(10));
    let fit = Subject::ALL
        .iter()
        .copied()
        .filter(|subject| *subject != Subject::KubeRs);
    let fit: Vec<Subject> = fit.collect();
    let measure = async |session: &Session<'_>, turn: Turn| {
        let mut rows = Vec::new();
        for fault in [None].into_iter().chain(FAULTS.map(|(name, _)| Some(name))) {
            let row = failing(session, &turn, fault).await;
            rows.push(
                row.with_context(|| format!("{fault:?}"))?
                    .variant(fault.unwrap_or("none")),
            );
        }
        Ok(rows)
    };
    session.subjects(row, &fit, measure).await
}

async fn failing(session: &Session<'_>, turn: &Turn, fault: Option<&str>) -> Result<Row> {
    // A subject that has not seen all objects of the healthy clusters by then never will: it usually takes seconds.
    const LIMIT: Duration = Duration::from_secs(45);
    let Row {
        clusters, objects, ..
    } = turn.row;
    let args = SimArgs {
        proxied: clusters / 5,
        ..SimArgs::new(clusters, objects)
    };
    let healthy = clusters - args.proxied;
    let mut sim = Servers::sim(&session.programs, args).await?;
    if let Some(fault) = fault {
        sim.command(&format!("fault {fault}")).await?;
    }
    let kubeconfig = sim.kubeconfig.clone();
    let expected = healthy * objects;
    let job = Job::new(&kubeconfig, expected);
    let mut process = Running::subject(turn.subject, &session.programs, &job)?;
    if process.synced(LIMIT).await.is_err() {
        let seen = process.seen().await?;
        process.stop().await?;
        let seconds = LIMIT.as_secs();
        return Ok(turn.row.clone().skipped(format!(
            "after {seconds} s it had seen {seen} of the {expected} objects of healthy clusters"
        )));
    }
    // Time for the reconnects to the failed clusters to start.
    sleep(Duration::from_secs(3)).await;
    process.beats().await?;
    let latency = beats(&mut sim, &mut process, 0..healthy, 40).await?;
    let row = turn.row.clone().with(Figure::SyncedS, process.synced_s);
    process.stop().await?;
    Ok(latency.into_row(row))
}

/// One cluster with a hundred times the events of each other, and more work than there are workers for it. Subjects without a queue that
/// clusters share have no row.
pub(super) async fn fairness(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let row = Row::new("fairness", "", 20, 10);
    let fit = [Subject::Mcr, Subject::GoSerial, Subject::GoConcurrent];
    session.subjects(row, &fit, stormy).await
}

async fn stormy(session: &Session<'_>, turn: Turn) -> Result<Vec<Row>> {
    const WRITES: usize = 60;
    let Row {
        clusters, objects, ..
    } = turn.row;
    let mut sim = Servers::sim(&session.programs, SimArgs::new(clusters, objects)).await?;
    let kubeconfig = sim.kubeconfig.clone();
    let job = Job {
        // These workers can run 800 reconciles a second, and 1,190 are requested.
        workers: Some(4),
        work: Some(Duration::from_millis(5)),
        ..Job::new(&kubeconfig, clusters * objects)
    };
    let mut process = session.start(turn.subject, &job, LIMIT).await?;
    let quiet = beats(&mut sim, &mut process, 1..clusters, WRITES).await?;
    sim.command("storm 1000 500").await?;
    sleep(Duration::from_secs(2)).await;
    process.beats().await?;
    let stormy = beats(&mut sim, &mut process, 1..clusters, WRITES).await?;
    process.stop().await?;
    let row = |variant: &str| turn.row.clone().variant(variant);
    Ok(vec![quiet.into_row(row("quiet")), stormy.into_row(row("storm"))])
}
