//! `wan`: the first sync over a slow network, and the lists after an outage of it, with and without gzip.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use tokio::time::{Instant, sleep, sleep_until};

use super::latency::Latency;
use crate::{
    driver::{
        Job, Running, Servers, Subject,
        link::{Link, WIDE},
    },
    kind::Kind,
    row::{Figure, Row},
    run::{REST, Session, Turn},
    subject::{Gzip, message::now},
};

/// The longest that a subject may take to sync, and to list again.
const LIMIT: Duration = Duration::from_secs(600);

/// How long the link is down, in seconds, if not asked for otherwise. Meanwhile the API server starts again.
const OUTAGE: usize = 15;

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(100);
    let objects = session.options.objects.unwrap_or(1_000);
    let mut servers = super::fleet::start(session, clusters, objects, &[Kind::ConfigMaps]).await?;
    let link = Link::to(&servers, WIDE).await?;
    let row = servers.row("wan");
    let mut seq = 0;
    let measure = async |session: &Session<'_>, turn: Turn| {
        let mut rows = Vec::new();
        for gzip in [Gzip::Off, Gzip::On, Gzip::Lists] {
            if gzip != Gzip::Lists || turn.subject.is_go() {
                seq += 2;
                rows.extend(one(session, &mut servers, &link, &turn, (gzip, seq)).await?);
            }
        }
        Ok(rows)
    };
    session.subjects(row, &Subject::SIDE_BY_SIDE, measure).await
}

async fn one(
    session: &Session<'_>,
    servers: &mut Servers,
    link: &Link,
    turn: &Turn,
    (gzip, seq): (Gzip, u64),
) -> Result<Vec<Row>> {
    let variant = match gzip {
        Gzip::Off => "identity",
        Gzip::On => "gzip",
        Gzip::Lists => "gzip, LISTs",
    };
    let row = turn.row.clone().variant(variant);
    let open = servers.open().await?;
    let before = Spent::until_now(servers, link, None)?;
    let job = Job {
        gzip: Some(gzip),
        ..Job::new(&link.kubeconfig, servers.objects)
    };
    let mut process = session.start(turn.subject, &job, LIMIT).await?;
    let synced = row.clone().with(Figure::SyncedS, process.synced_s);
    let synced = synced.with(Figure::RssPeakKb, process.usage()?.peak_kb);
    let mut rows = vec![before.into_row(synced, &Spent::until_now(servers, link, Some(&process))?)];
    let outage = session.options.seconds.unwrap_or(OUTAGE);
    // Simulated API servers remember all.
    if outage > 0 && servers.variant().is_empty() {
        servers.watched(open).await?;
        sleep(REST).await;
        let ends = Instant::now() + Duration::from_secs(outage as u64);
        link.set_up(false);
        // After this write no watch can go on: its version is older than all that the server then remembers.
        servers.beat(seq).await?;
        servers.restart().await?;
        servers.beat(seq + 1).await?;
        sleep_until(ends).await;
        process.beats().await?;
        let before = Spent::until_now(servers, link, Some(&process))?;
        let restored = BTreeMap::from([(seq + 1, now())]);
        link.set_up(true);
        let (mut seen, deadline) = (Vec::new(), Instant::now() + LIMIT);
        let latency = loop {
            sleep(Duration::from_millis(100)).await;
            seen.extend(process.beats().await?);
            let latency = Latency::of(&seen, servers.clusters, &restored);
            if latency.missed == 0 || Instant::now() > deadline {
                break latency;
            }
        };
        let row = latency.into_row(row.variant(format!("{variant}, relist")));
        rows.push(before.into_row(row, &Spent::until_now(servers, link, Some(&process))?));
    }
    process.stop().await?;
    servers.quiet(open).await?;
    Ok(rows)
}

/// Megabytes on the wire, and the CPU time of the subject and of the server.
struct Spent {
    wire: f64,
    cpu: Duration,
    server: Option<Duration>,
}

impl Spent {
    fn until_now(servers: &Servers, link: &Link, process: Option<&Running>) -> Result<Self> {
        let usage = process.map(Running::usage).transpose()?;
        Ok(Self {
            wire: link.bytes() as f64 / 1e6,
            cpu: usage.map_or(Duration::ZERO, |usage| usage.cpu),
            server: servers.server_cpu(),
        })
    }

    /// A row with what was spent between this and a later time.
    fn into_row(self, row: Row, later: &Self) -> Row {
        let since = |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64();
        let server = self.server.zip(later.server);
        row.with(Figure::CpuS, since(self.cpu, later.cpu))
            .with(Figure::ServerCpuS, server.map(|(before, now)| since(before, now)))
            .with(Figure::Value, later.wire - self.wire)
    }
}
