//! `fairness`: one cluster with a hundred times the events of each other, and more work than there are workers for it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Session, beats, latency::Latency};
use crate::{
    driver::{Job, Running, Subject, sim::Sim},
    row::Row,
};

const CLUSTERS: usize = 20;
const OBJECTS: usize = 10;
/// These workers can run 800 reconciles a second, and 1,190 are requested.
const WORKERS: usize = 4;
const WORK: Duration = Duration::from_millis(5);
/// The others are written to ten times a second.
const PAUSE: Duration = Duration::from_millis(100);
const STORM: usize = 1_000;
const WRITES: usize = 60;

/// Runs the suite. Subjects without a queue that clusters share have no row.
///
/// # Errors
///
/// When the simulator does not start, or a subject does not sync.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for subject in session.order_of(run, |subject| subject == Subject::Mcr || subject.is_go()) {
            if let Some(why) = session.missing(subject) {
                session.ran(
                    run,
                    Row::skipped("fairness", subject.name(), CLUSTERS, OBJECTS, why),
                    &mut runs,
                );
                continue;
            }
            let rows = one(session, subject).await;
            for row in rows.with_context(|| format!("fairness {}", subject.name()))? {
                session.ran(run, row, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

async fn one(session: &Session<'_>, subject: Subject) -> Result<[Row; 2]> {
    let mut sim = Sim::start(&session.programs, CLUSTERS, OBJECTS).await?;
    let kubeconfig = sim.kubeconfig().to_owned();
    let job = Job {
        workers: Some(WORKERS),
        work: Some(WORK),
        ..Job::new(&kubeconfig, CLUSTERS * OBJECTS)
    };
    let mut process = Running::subject(subject, &session.programs, &job)?;
    process.synced(Duration::from_secs(120)).await?;
    let row = |variant: &str, latency: Latency| {
        let row = Row::new("fairness", subject.name(), CLUSTERS, OBJECTS);
        latency.into_row(Row {
            variant: variant.to_owned(),
            ..row
        })
    };
    let others = 1..CLUSTERS;
    let quiet = beats(&mut sim, &mut process, others.clone(), WRITES, PAUSE).await?;
    sim.command(&format!("storm {STORM} 500")).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    process.beats().await?;
    let stormy = beats(&mut sim, &mut process, others, WRITES, PAUSE).await?;
    process.stop().await?;
    Ok([row("quiet", quiet), row("storm", stormy)])
}
