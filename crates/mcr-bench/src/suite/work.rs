//! `work`: a reconciler that applies one ConfigMap for each request, in every cluster at once.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Session;
use crate::{
    driver::{Backend, Job, Running, Subject, real::Real, sim::Sim, work::Work},
    row::Row,
    subject::{
        message::{Message, now},
        work::CONCURRENCY,
    },
};

/// The longest that a subject may take to sync, or to apply all.
const LIMIT: Duration = Duration::from_secs(300);

/// How long after the sync a subject gets work, if not asked for otherwise. By then mcr has read the identities of 500 clusters, which it does
/// once for each that has joined.
const REST: Duration = Duration::from_secs(25);

/// Runs the suite.
///
/// # Errors
///
/// When the servers don't start or refuse the objects, when a subject does not sync, and when it does not apply all.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(20);
    let (mut backend, work) = if session.options.sim {
        let sim = Sim::start(&session.programs, clusters, 0).await?;
        let work = Work::on_sim(&sim, objects).await?;
        (Backend::Sim(Box::new(sim)), work)
    } else {
        let real = Real::start(clusters, 0).await?;
        let work = Work::on_real(&real, objects).await?;
        (Backend::Real(real), work)
    };
    let (mut runs, mut round) = (Vec::new(), 0);
    for run in 0..session.options.runs {
        // The first version with kube-rs differs in how it lists and watches, which is not measured here.
        for subject in session.order_of(run, |subject| {
            !matches!(subject, Subject::KubeRs | Subject::Floor)
        }) {
            let row = match session.missing(subject) {
                Some(why) => Row::skipped("work", subject.name(), clusters, objects, why),
                None => {
                    round += 1;
                    one(session, &mut backend, &work, subject, round)
                        .await
                        .with_context(|| format!("work {}", subject.name()))?
                }
            };
            let variant = if session.options.sim { "sim" } else { "" }.to_owned();
            session.ran(run, Row { variant, ..row }, &mut runs);
        }
    }
    Ok(session.report(&runs))
}

async fn one(
    session: &Session<'_>,
    backend: &mut Backend,
    work: &Work,
    subject: Subject,
    round: u64,
) -> Result<Row> {
    let open = backend.counts().await?.map_or(0, |counts| counts.open);
    let job = Job {
        workers: Some(CONCURRENCY),
        round: Some(round),
        ..Job::new(backend.kubeconfig(), work.objects())
    };
    let mut process = Running::subject(subject, &session.programs, &job)?;
    process.synced(LIMIT).await?;
    // Some subjects open their watches after they have seen all objects.
    backend.watched(open).await?;
    tokio::time::sleep(session.options.idle.unwrap_or(REST)).await;
    let (before, server_before) = (process.usage()?, backend.server_cpu());
    let begun = now();
    work.write(round).await?;
    let (at, failed) = match process.next(LIMIT).await? {
        Message::Applied { at, failed } => (at, failed),
        other => bail!("it said {other:?} before it had applied all"),
    };
    let (after, server_after) = (process.usage()?, backend.server_cpu());
    let wrong = work.wrong().await?;
    process.stop().await?;
    backend.quiet(open).await?;
    work.clear().await?;
    let server = server_before
        .zip(server_after)
        .map(|(before, after)| after.saturating_sub(before).as_secs_f64());
    let seconds = at.saturating_sub(begun) as f64 / 1e9;
    Ok(Row {
        rss_peak_kb: Some(after.peak_kb),
        fds: Some(after.fds),
        cpu_s: Some(after.cpu.saturating_sub(before.cpu).as_secs_f64()),
        server_cpu_s: server,
        missed: Some(failed as f64 + wrong as f64),
        value: (seconds > 0.0).then(|| work.objects() as f64 / seconds),
        ..Row::new(
            "work",
            subject.name(),
            backend.clusters(),
            work.objects() / backend.clusters().max(1),
        )
    })
}
