//! `isolation`: a fifth of the clusters fail. Measures the effect on the others.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Session, beats};
use crate::{
    driver::{Job, Running, Subject, sim::Sim},
    row::Row,
    simulator::FAULTS,
};

const PAUSE: Duration = Duration::from_millis(100);
const WRITES: usize = 40;
/// A subject that has not seen all objects of the healthy clusters by then never will: it usually takes seconds.
const LIMIT: Duration = Duration::from_secs(45);

/// Runs the suite.
///
/// # Errors
///
/// When the simulator does not start.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(100);
    let objects = session.options.objects.unwrap_or(10);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for fault in [None].into_iter().chain(FAULTS.map(Some)) {
            for subject in session.order_of(run, |subject| subject != Subject::KubeRs) {
                let row = match session.missing(subject) {
                    Some(why) => Row::skipped("isolation", subject.name(), clusters, objects, why),
                    None => one(session, subject, fault, clusters, objects)
                        .await
                        .with_context(|| format!("isolation {} {fault:?}", subject.name()))?,
                };
                let variant = fault.unwrap_or("none").to_owned();
                session.ran(run, Row { variant, ..row }, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

async fn one(
    session: &Session<'_>,
    subject: Subject,
    fault: Option<&str>,
    clusters: usize,
    objects: usize,
) -> Result<Row> {
    let sick = clusters / 5;
    let options = [format!("--proxied={sick}")];
    let mut sim = Sim::start_with(&session.programs, clusters, objects, &options).await?;
    if let Some(fault) = fault {
        sim.command(&format!("fault {fault}")).await?;
    }
    let healthy = clusters - sick;
    let kubeconfig = sim.kubeconfig().to_owned();
    let job = Job::new(&kubeconfig, healthy * objects);
    let mut process = Running::subject(subject, &session.programs, &job)?;
    let started = process.started();
    let row = Row::new("isolation", subject.name(), clusters, objects);
    let synced = match process.synced(LIMIT).await {
        Ok(synced) => synced,
        Err(_) => {
            let seen = process.seen().await?;
            process.stop().await?;
            let why = format!(
                "after {} s it had seen {seen} of the {} objects of healthy clusters",
                LIMIT.as_secs(),
                healthy * objects
            );
            return Ok(Row {
                skipped: Some(why),
                ..row
            });
        }
    };
    // Time for the reconnects to the failed clusters to start.
    tokio::time::sleep(Duration::from_secs(3)).await;
    process.beats().await?;
    let latency = beats(&mut sim, &mut process, 0..healthy, WRITES, PAUSE).await?;
    process.stop().await?;
    Ok(latency.into_row(Row {
        synced_s: Some(synced.saturating_sub(started) as f64 / 1e9),
        ..row
    }))
}
