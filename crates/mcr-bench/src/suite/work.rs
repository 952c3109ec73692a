//! `work`: a reconciler that applies one ConfigMap for each request, in every cluster at once.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::{
    driver::{Job, Servers, Subject, work::Work},
    kind::Kind,
    row::{Figure, Row},
    run::{Session, Turn},
    simulator::SimArgs,
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

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    use Subject::{GoConcurrent, GoSerial, KubeRsTuned, Mcr};
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(20);
    let mut servers = if session.options.sim {
        Servers::sim(&session.programs, SimArgs::new(clusters, 0)).await?
    } else {
        Servers::real(clusters, 0, &[Kind::ConfigMaps]).await?
    };
    let work = Work::on(&servers, objects).await?;
    let row = Row::new("work", "", clusters, objects).variant(servers.variant());
    let mut round = 0;
    // The first version with kube-rs differs in how it lists and watches, which is not measured here.
    let fit = [Mcr, KubeRsTuned, GoSerial, GoConcurrent];
    let measure = async |session: &Session<'_>, turn: Turn| {
        round += 1;
        one(session, &mut servers, &work, turn, round).await
    };
    session.subjects(row, &fit, measure).await
}

async fn one(
    session: &Session<'_>,
    servers: &mut Servers,
    work: &Work,
    turn: Turn,
    round: u64,
) -> Result<Vec<Row>> {
    let open = servers.open().await?;
    let kubeconfig = servers.kubeconfig.clone();
    let job = Job {
        workers: Some(CONCURRENCY),
        round: Some(round),
        ..Job::new(&kubeconfig, work.objects())
    };
    let mut process = session.start(turn.subject, &job, LIMIT).await?;
    // Some subjects open their watches after they have seen all objects.
    servers.watched(open).await?;
    tokio::time::sleep(session.options.idle.unwrap_or(REST)).await;
    let (before, server_before) = (process.usage()?, servers.server_cpu());
    let begun = now();
    work.write(round).await?;
    let (at, failed) = match process.next(LIMIT).await? {
        Message::Applied { at, failed } => (at, failed),
        other => bail!("it sent {other:?} before it had applied all"),
    };
    let (after, server_after) = (process.usage()?, servers.server_cpu());
    let wrong = work.wrong().await?;
    process.stop().await?;
    servers.quiet(open).await?;
    work.clear().await?;
    let server = server_before.zip(server_after);
    let server = server.map(|(before, after)| after.saturating_sub(before).as_secs_f64());
    let seconds = at.saturating_sub(begun) as f64 / 1e9;
    let row = turn
        .row
        .with(Figure::RssPeakKb, after.peak_kb)
        .with(Figure::Fds, after.fds);
    let row = row.with(Figure::CpuS, after.cpu.saturating_sub(before.cpu).as_secs_f64());
    let row = row.with(Figure::ServerCpuS, server);
    let row = row.with(Figure::Missed, failed as f64 + wrong as f64);
    let rate = (seconds > 0.0).then(|| work.objects() as f64 / seconds);
    Ok(vec![row.with(Figure::Value, rate)])
}
