//! `update`: the latency of one write to the reconcilers of all clusters, and mcr's own share of it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use tokio::time::sleep;

use super::latency::Latency;
use crate::{
    alone::Case,
    driver::{Job, Servers, Subject},
    kind::Kind,
    row::{Figure, Row},
    run::{Session, Turn},
};

/// So many that the p99 is not that of the slowest one: the server stands still now and then, for tens of milliseconds.
const WRITES: u64 = 100;

const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(10);
    let mut servers = Servers::real(clusters, objects, &[Kind::ConfigMaps]).await?;
    let row = servers.row("update").variant(session.variant(""));
    let all = [&Subject::ALL[..], &[Subject::Floor]].concat();
    let measure = async |session: &Session<'_>, turn: Turn| {
        let is_mcr = turn.subject == Subject::Mcr;
        let mut rows = vec![one(session, &mut servers, turn).await?];
        if is_mcr {
            rows.push(core_share(session).await?);
        }
        Ok(rows)
    };
    session.subjects(row, &all, measure).await
}

async fn one(session: &Session<'_>, servers: &mut Servers, turn: Turn) -> Result<Row> {
    let open = servers.open().await?;
    let kubeconfig = servers.kubeconfig.clone();
    let job = Job {
        threads: session.options.threads,
        ..Job::new(&kubeconfig, servers.objects)
    };
    let mut process = session
        .start(turn.subject, &job, Duration::from_secs(300))
        .await?;
    sleep(Duration::from_secs(1)).await;
    // The first writes are slower, because code and connections are cold.
    for seq in 1..=5 {
        servers.beat(seq).await?;
        sleep(PAUSE).await;
    }
    process.beats().await?;
    let mut answered = BTreeMap::new();
    for seq in 100..100 + WRITES {
        answered.insert(seq, servers.beat(seq).await?);
        sleep(PAUSE).await;
    }
    sleep(Duration::from_millis(500)).await;
    let seen = process.beats().await?;
    process.stop().await?;
    servers.quiet(open).await?;
    Ok(Latency::of(&seen, servers.clusters, &answered).into_row(turn.row))
}

/// From the bytes of an event to the reconciler, without a server.
async fn core_share(session: &Session<'_>) -> Result<Row> {
    let args = ["--size=10000".to_owned()];
    let figures = session.alone(Case::CoreShare, false, &args).await?;
    let figure = |name| figures.get(name).copied();
    let row = Row::new("update", "mcr", 100, 1).variant("core");
    let row = row
        .with(Figure::P50Ms, figure("p50_ms"))
        .with(Figure::P99Ms, figure("p99_ms"));
    Ok(row.with(Figure::Value, figure("events_per_s")))
}
