//! `capacity`: how many clusters one process carries, and what a steady stream of events costs it then.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::time::{interval, sleep};

use super::latency::Latency;
use crate::{
    driver::{Job, Running, Servers, Subject},
    kind::Kind,
    proc,
    row::{Figure, Row},
    run::{Session, Turn},
    simulator::SimArgs,
    subject::message::now,
};

/// The longest that a subject may take to sync.
const LIMIT: Duration = Duration::from_secs(900);

/// How long after the sync memory is read, if not asked for otherwise. The events come then.
const REST: Duration = Duration::from_secs(10);

/// The kinds that share the objects of a cluster.
const KINDS: [Kind; 3] = [Kind::ConfigMaps, Kind::Deployments, Kind::Pods];

/// Every so often, one object is written in so many clusters: 500 events a second.
const PAUSE: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 5;

/// The open files that are no watches: probes, lists, and those of the program.
const OTHER_FILES: usize = 1_000;

/// The most objects with which kube-rs-tuned is measured. It takes about 8 kB for each.
const OBJECTS_OF_KUBE_RS: usize = 1_500_000;

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let wanted = session.options.clusters.unwrap_or(10_000);
    let clusters = fitting(wanted, proc::raise_open_files());
    if clusters < wanted {
        eprintln!(
            "bench: the limit of open files is enough for {clusters} clusters with {} watches each, and not for {wanted}. \
             As root, `ulimit -Hn {}` before this command makes it enough",
            KINDS.len(),
            wanted * KINDS.len() + OTHER_FILES
        );
    }
    let objects = session.options.objects.unwrap_or(500);
    let args = SimArgs {
        kinds: KINDS.to_vec(),
        ..SimArgs::new(clusters, objects.div_ceil(KINDS.len()))
    };
    let mut servers = Servers::sim(&session.programs, args).await?;
    let row = servers.row("capacity");
    let mut seq = 0;
    let measure = async |session: &Session<'_>, turn: Turn| one(session, &mut servers, turn, &mut seq).await;
    let fit = [Subject::Mcr, Subject::KubeRsTuned];
    session.subjects(row, &fit, measure).await
}

/// So many of these clusters as the limit of open files allows.
fn fitting(clusters: usize, open_files: Option<u64>) -> usize {
    let limit = open_files.and_then(|limit| usize::try_from(limit).ok());
    let most = limit.map(|limit| limit.saturating_sub(OTHER_FILES) / KINDS.len());
    most.map_or(clusters, |most| clusters.min(most.max(1)))
}

async fn one(session: &Session<'_>, servers: &mut Servers, turn: Turn, seq: &mut u64) -> Result<Vec<Row>> {
    if turn.subject != Subject::Mcr && servers.objects > OBJECTS_OF_KUBE_RS {
        let why = "it takes about 8 kB for each object, more than this machine may have";
        return Ok(vec![turn.row.skipped(why)]);
    }
    let before = servers.counts().await?.unwrap_or_default();
    let (kubeconfig, kinds) = (servers.kubeconfig.clone(), servers.kinds.clone());
    let job = Job {
        kinds: &kinds,
        ..Job::new(&kubeconfig, servers.objects)
    };
    let mut process = session.start(turn.subject, &job, LIMIT).await?;
    let at_sync = process.usage()?;
    let counted = servers.watched(before.open).await?.unwrap_or_default();
    sleep(session.options.idle.unwrap_or(REST)).await;
    let idle = process.usage()?;
    // Those of the first sync.
    process.beats().await?;
    let seconds = session.options.seconds.unwrap_or(20);
    let (latency, cpu) = steady(servers, &mut process, seconds, seq).await?;
    let peak_kb = process.usage()?.peak_kb;
    let synced_s = process.synced_s;
    process.stop().await?;
    servers.quiet(before.open).await?;

    let row = turn.row.clone().with(Figure::SyncedS, synced_s);
    let row = row.with(Figure::RssIdleKb, idle.rss_kb);
    let row = row.with(Figure::RssPeakKb, peak_kb);
    let row = row.with(Figure::CpuS, at_sync.cpu.as_secs_f64());
    let row = row.with(Figure::Fds, idle.fds);
    let row = row.with(Figure::Lists, counted.lists.saturating_sub(before.lists) as f64);
    let row = row.with(
        Figure::Watches,
        counted.watches.saturating_sub(before.watches) as f64,
    );
    let events = turn.row.variant("500 events/s").with(Figure::Value, 100.0 * cpu);
    Ok(vec![row, latency.into_row(events)])
}

/// Writes to some clusters after the others for so many seconds. Returns the latency, and the CPU meanwhile as a fraction of a core.
async fn steady(
    servers: &mut Servers,
    process: &mut Running,
    seconds: usize,
    seq: &mut u64,
) -> Result<(Latency, f64)> {
    let parts = servers.clusters.div_ceil(AT_ONCE);
    let mut ticks = interval(PAUSE);
    let (mut written, mut wanted) = (BTreeMap::new(), 0);
    let (begun, before) = (Instant::now(), process.usage()?.cpu);
    for _ in 0..seconds * 1_000 / PAUSE.as_millis() as usize {
        ticks.tick().await;
        *seq += 1;
        let from = (*seq as usize % parts) * AT_ONCE;
        let to = servers.clusters.min(from + AT_ONCE);
        written.insert(*seq, now());
        servers.command(&format!("beat {seq} {from} {to}")).await?;
        wanted += to - from;
    }
    let cpu = process.usage()?.cpu.saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
    // A write that is seen after this pause counts as missed.
    sleep(Duration::from_secs(1)).await;
    let seen = process.beats().await?;
    let latency = Latency::of_parts(&seen, parts as u64, wanted, &written);
    Ok((latency, cpu))
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn there_are_no_more_clusters_than_open_files_for_their_watches() {
        assert_eq!(fitting(10_000, Some(20_000)), 6_333);
        assert_eq!(fitting(100, Some(20_000)), 100);
        assert_eq!(fitting(10_000, None), 10_000);
        assert_eq!(fitting(10_000, Some(10)), 1);
    }
}
