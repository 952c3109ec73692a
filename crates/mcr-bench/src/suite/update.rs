//! `update`: the latency of one write to the reconcilers of all clusters, and mcr's own share of it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};

use super::{Session, latency::Latency};
use crate::{
    alone::Case,
    driver::{Backend, Job, Running, Subject, real::Real},
    row::Row,
};

/// So many that the p99 is not that of the slowest one: the server stands still now and then, for tens of milliseconds.
const WRITES: u64 = 100;

/// Runs the suite.
///
/// # Errors
///
/// When the servers don't start, or a subject does not sync.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(10);
    let real = Real::start(clusters, objects).await?;
    let mut backend = Backend::Real(real);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        for subject in session.order(run) {
            let row = match session.missing(subject) {
                Some(why) => Row {
                    variant: session.variant(""),
                    ..Row::skipped(
                        "update",
                        subject.name(),
                        clusters,
                        backend.objects() / clusters,
                        why,
                    )
                },
                None => one(session, &mut backend, subject)
                    .await
                    .with_context(|| format!("update {}", subject.name()))?,
            };
            session.ran(run, row, &mut runs);
        }
        if session.options.subjects.contains(&Subject::Mcr) {
            let figures = session
                .alone(Case::CoreShare, false, &["--size=10000".to_owned()])
                .await?;
            let figure = |name| figures.get(name).copied();
            let row = Row {
                variant: "core".to_owned(),
                p50_ms: figure("p50_ms"),
                p99_ms: figure("p99_ms"),
                value: figure("events_per_s"),
                ..Row::new("update", "mcr", 100, 1)
            };
            session.ran(run, row, &mut runs);
        }
    }
    Ok(session.report(&runs))
}

async fn one(session: &Session<'_>, backend: &mut Backend, subject: Subject) -> Result<Row> {
    let (clusters, objects) = (backend.clusters(), backend.objects());
    let open = backend.counts().await?.map_or(0, |counts| counts.open);
    let job = Job {
        threads: session.options.threads,
        ..Job::new(backend.kubeconfig(), objects)
    };
    let mut process = Running::subject(subject, &session.programs, &job)?;
    process.synced(Duration::from_secs(300)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut answered = BTreeMap::new();
    if let Backend::Real(real) = &*backend {
        // The first writes are slower, because code and connections are cold.
        for seq in 1..=5 {
            real.beat(seq).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        process.beats().await?;
        for seq in 100..100 + WRITES {
            answered.insert(seq, real.beat(seq).await?);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seen = process.beats().await?;
    process.stop().await?;
    backend.quiet(open).await?;
    let latency = Latency::of(&seen, clusters, &answered);
    let row = Row {
        variant: session.variant(""),
        ..Row::new("update", subject.name(), clusters, objects / clusters.max(1))
    };
    Ok(latency.into_row(row))
}
