//! `fleet`, `kinds` and `large`: from the start of the process until every object of every cluster has been reconciled, and what that
//! holds.

use std::time::Duration;

use anyhow::Result;

use crate::{
    driver::{Job, Running, Servers, Subject},
    kind::Kind,
    row::{Figure, Row},
    run::{REST, Session, Turn},
    simulator::SimArgs,
};

/// The longest that a subject may take to sync.
const LIMIT: Duration = Duration::from_secs(600);

/// How long after the sync memory is read in the first run of `fleet`, if not asked for otherwise. Idle CPU is measured in the second
/// half, when the identities of all clusters are known and silent ones are probed.
const IDLE: Duration = Duration::from_secs(120);

/// The same of `kinds` and `large`. Go's runtime gives memory back for some time after a sync.
const IDLE_OF_KINDS: Duration = Duration::from_secs(30);

/// The shortest time over which idle CPU is measured: each silent cluster is probed in it.
const SHORTEST: Duration = Duration::from_secs(30);

pub(super) async fn fleet(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let options = &session.options;
    if options.subjects.is_empty() {
        return Ok(Vec::new());
    }
    let clusters = options.clusters.unwrap_or(500);
    let objects = options.objects.unwrap_or(102);
    let mut servers = match &options.kubeconfig {
        Some(kubeconfig) => Servers::brought(kubeconfig).await?,
        None => start(session, clusters, objects, &[Kind::ConfigMaps]).await?,
    };
    let row = servers.row("fleet").variant(session.variant(servers.variant()));
    let all = [&Subject::ALL[..], &[Subject::Floor]].concat();
    let measure = async |session: &Session<'_>, turn: Turn| {
        let idle = session.options.idle.or((turn.run == 0).then_some(IDLE));
        one(session, &mut servers, turn, idle).await
    };
    session.subjects(row, &all, measure).await
}

pub(super) async fn kinds(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(200);
    let objects = session.options.objects.unwrap_or(20);
    let servers = start(session, clusters, objects, &Kind::ALL).await?;
    let row = servers.row("kinds").variant(servers.variant());
    of_kinds(session, servers, row, &Subject::ALL).await
}

pub(super) async fn large(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let args = SimArgs {
        kinds: vec![Kind::Pods],
        large_pods: session.options.objects.unwrap_or(20_000),
        ..SimArgs::new(session.options.clusters.unwrap_or(5), 0)
    };
    let servers = Servers::sim(&session.programs, args).await?;
    let row = servers.row("large");
    of_kinds(session, servers, row, &Subject::SIDE_BY_SIDE).await
}

/// Starts a real API server, or simulated ones if these are asked for.
pub(super) async fn start(
    session: &Session<'_>,
    clusters: usize,
    objects: usize,
    kinds: &[Kind],
) -> Result<Servers> {
    if !session.options.sim {
        return Servers::real(clusters, objects, kinds).await;
    }
    let args = SimArgs {
        kinds: kinds.to_vec(),
        ..SimArgs::new(clusters, objects)
    };
    Servers::sim(&session.programs, args).await
}

async fn of_kinds(
    session: &mut Session<'_>,
    mut servers: Servers,
    row: Row,
    fit: &[Subject],
) -> Result<Vec<Row>> {
    let idle = Some(session.options.idle.unwrap_or(IDLE_OF_KINDS));
    let measure = async |session: &Session<'_>, turn: Turn| one(session, &mut servers, turn, idle).await;
    session.subjects(row, fit, measure).await
}

/// One subject in one run. `idle` is how long after the sync memory is read; it is not without it.
async fn one(
    session: &Session<'_>,
    servers: &mut Servers,
    turn: Turn,
    idle: Option<Duration>,
) -> Result<Vec<Row>> {
    let (before, server_before) = (servers.counts().await?, servers.server_cpu());
    let (kubeconfig, kinds) = (servers.kubeconfig.clone(), servers.kinds.clone());
    let job = Job {
        threads: session.options.threads,
        kinds: &kinds,
        ..Job::new(&kubeconfig, servers.objects)
    };
    let process: Running = session.start(turn.subject, &job, LIMIT).await?;
    let at_sync = process.usage()?;
    let server = servers.server_cpu().zip(server_before);
    let server = server.map(|(now, before)| now.saturating_sub(before).as_secs_f64());
    let half = idle.unwrap_or(REST) / 2;
    if half >= SHORTEST && servers.client().is_some() {
        // An API server sends no bookmark on a watch from the newest version, and nobody else changes a ConfigMap here.
        servers.beat(1).await?;
    }
    tokio::time::sleep(half).await;
    let measured_at_rest = process.usage()?;
    tokio::time::sleep(half).await;
    let in_the_end = process.usage()?;
    let cpu = in_the_end.cpu.saturating_sub(measured_at_rest.cpu);
    let open = before.map_or(0, |before| before.open);
    let after = servers.watched(open).await?;
    let synced_s = process.synced_s;
    process.stop().await?;
    servers.quiet(open).await?;
    let counted = before.zip(after);
    let lists = counted.map(|(before, after)| after.lists.saturating_sub(before.lists) as f64);
    let watches = counted.map(|(before, after)| after.watches.saturating_sub(before.watches) as f64);
    let idle_cpu = (half >= SHORTEST).then(|| cpu.as_secs_f64() / half.as_secs_f64());
    let row = turn.row.with(Figure::SyncedS, synced_s);
    let row = row.with(Figure::RssIdleKb, idle.map(|_| in_the_end.rss_kb));
    let row = row.with(Figure::RssPeakKb, idle.map(|_| in_the_end.peak_kb));
    let row = row.with(Figure::CpuS, at_sync.cpu.as_secs_f64());
    let row = row.with(Figure::ServerCpuS, server);
    let row = row.with(Figure::IdleCpu, idle_cpu);
    let row = row.with(Figure::Fds, in_the_end.fds);
    Ok(vec![
        row.with(Figure::Lists, lists).with(Figure::Watches, watches),
    ])
}
