//! `fleet`: from the start of the process until every object of every cluster has been reconciled, and what that holds.

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Session, round::REST};
use crate::{
    driver::{Backend, Job, Running, Subject, real::Real, sim::Sim},
    row::Row,
};

/// The longest that a subject may take to sync.
const LIMIT: Duration = Duration::from_secs(600);

/// How long after the sync memory is looked at in the first run, if not asked for otherwise. Idle CPU is measured in the second
/// half, when the identities of all clusters are known and silent ones are probed.
const IDLE: Duration = Duration::from_secs(120);

/// The shortest time over which idle CPU is measured: each silent cluster is probed in it.
const SHORTEST: Duration = Duration::from_secs(30);

/// Runs the suite.
///
/// # Errors
///
/// When the servers don't start, when a subject does not sync within ten minutes, and when it does not watch every cluster within
/// another one.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let options = session.options.clone();
    if options.subjects.is_empty() {
        return Ok(Vec::new());
    }
    let clusters = options.clusters.unwrap_or(500);
    let objects = options.objects.unwrap_or(102);
    let mut backend = match &options.kubeconfig {
        Some(kubeconfig) => Backend::brought(kubeconfig).await?,
        None if options.sim => {
            Backend::Sim(Box::new(Sim::start(&session.programs, clusters, objects).await?))
        }
        None => Backend::Real(Real::start(clusters, objects).await?),
    };
    let mut runs = Vec::new();
    for run in 0..options.runs {
        for subject in session.order(run) {
            if let Some(why) = session.missing(subject) {
                eprintln!("SKIPPED fleet {}: {why}", subject.name());
                runs.push(Row {
                    variant: session.variant(variant(&backend)),
                    ..Row::skipped("fleet", subject.name(), clusters, objects, why)
                });
                continue;
            }
            let row = one(
                session,
                &mut backend,
                subject,
                session.options.idle.or((run == 0).then_some(IDLE)),
            )
            .await
            .with_context(|| format!("fleet {}", subject.name()))?;
            session.ran(run, row, &mut runs);
        }
    }
    Ok(session.report(&runs))
}

fn variant(backend: &Backend) -> &'static str {
    match backend {
        Backend::Real(_) => "",
        Backend::Sim(_) => "sim",
        Backend::Brought { .. } => "brought",
    }
}

/// One subject in one run, also of suites `kinds` and `large`. `idle` is how long after the sync memory is looked at; it is not without it.
pub(super) async fn one(
    session: &Session<'_>,
    backend: &mut Backend,
    subject: Subject,
    idle: Option<Duration>,
) -> Result<Row> {
    let before = backend.counts().await?;
    let server = backend.server_cpu();
    let job = Job {
        threads: session.options.threads,
        kinds: backend.kinds(),
        ..Job::new(backend.kubeconfig(), backend.objects())
    };
    let mut process = Running::subject(subject, &session.programs, &job)?;
    let started = process.started();
    let synced = process.synced(LIMIT).await?;
    let at_sync = process.usage()?;
    let server = server.and_then(|before| Some(backend.server_cpu()?.saturating_sub(before)));
    let half = idle.unwrap_or(REST) / 2;
    tokio::time::sleep(half).await;
    let measured_at_rest = process.usage()?;
    tokio::time::sleep(half).await;
    let in_the_end = process.usage()?;
    let cpu = in_the_end.cpu.saturating_sub(measured_at_rest.cpu);
    let open = before.map_or(0, |before| before.open);
    let after = backend.watched(open).await?;
    process.stop().await?;
    backend.quiet(open).await?;
    let asked = before.zip(after);
    Ok(Row {
        variant: session.variant(variant(backend)),
        synced_s: Some(synced.saturating_sub(started) as f64 / 1e9),
        rss_idle_kb: idle.map(|_| in_the_end.rss_kb),
        rss_peak_kb: idle.map(|_| in_the_end.peak_kb),
        cpu_s: Some(at_sync.cpu.as_secs_f64()),
        server_cpu_s: server.map(|cpu| cpu.as_secs_f64()),
        idle_cpu: (half >= SHORTEST).then(|| cpu.as_secs_f64() / half.as_secs_f64()),
        fds: Some(in_the_end.fds),
        lists: asked.map(|(before, after)| after.lists.saturating_sub(before.lists) as f64),
        watches: asked.map(|(before, after)| after.watches.saturating_sub(before.watches) as f64),
        ..Row::new(
            "fleet",
            subject.name(),
            backend.clusters(),
            backend.objects() / backend.clusters().max(1),
        )
    })
}
