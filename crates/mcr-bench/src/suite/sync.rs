//! `sync`: 10,000 ConfigMaps of 500 clusters are copied to one more cluster, by mcr-sync and by hand on kube-rs.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tokio::time::sleep;

use super::Session;
use crate::{
    alone::Figures,
    driver::{Running, sim::Sim},
    proc::Usage,
    row::Row,
};

/// The longest that a subject may take to copy all.
const LIMIT: Duration = Duration::from_secs(300);

/// How many edits a burst has.
const EDITS: usize = 10_000;

/// How long a subject is idle before memory is looked at, and how long idle CPU is measured.
const IDLE: Duration = Duration::from_secs(10);

/// Runs the suite.
///
/// # Errors
///
/// When the simulator does not start, and when a subject does not copy all.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let subjects = [
        ("mcr-sync", session.programs.sync()?),
        ("kube-rs-by-hand", session.programs.sync_by_hand()?),
    ];
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        let mut order = subjects.clone();
        order.rotate_left(run % subjects.len());
        for (name, program) in order {
            let rows = one(session, name, &program).await;
            for row in rows.with_context(|| format!("sync {name}"))? {
                session.ran(run, row, &mut runs);
            }
        }
    }
    Ok(session.report(&runs))
}

/// A subject, its servers, and what both had used at the last look.
struct Round<'a> {
    name: &'static str,
    program: &'a PathBuf,
    objects: usize,
    sim: Sim,
    rows: Vec<Row>,
}

/// The state before a part that is measured.
struct Before {
    usage: Usage,
    requests: Figures,
}

async fn one(session: &Session<'_>, name: &'static str, program: &PathBuf) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(20);
    // One for the targets, and one that joins in the end.
    let sim = Sim::start_with(
        &session.programs,
        clusters + 2,
        0,
        &["--audit=1000000".to_owned()],
    )
    .await?;
    let mut round = Round {
        name,
        program,
        objects,
        sim,
        rows: Vec::new(),
    };
    round.has_contexts(clusters + 1).await?;
    let empty = round.idle_memory().await?;
    round
        .sim
        .command(&format!("sync fill {} {objects}", clusters + 1))
        .await?;
    round.initial().await?;
    round.restart(empty).await?;
    Ok(round.rows)
}

impl Round<'_> {
    fn row(&self, variant: &str) -> Row {
        Row {
            variant: variant.to_owned(),
            ..Row::new("sync", self.name, self.sim.clusters() - 2, self.objects)
        }
    }

    fn value(&mut self, variant: &str, value: f64) {
        let row = Row {
            value: Some(value),
            ..self.row(variant)
        };
        self.rows.push(row);
    }

    /// How many objects are copied.
    fn total(&self) -> f64 {
        ((self.sim.clusters() - 2) * self.objects) as f64
    }

    fn start(&self) -> Result<Running> {
        let kubeconfig = format!("--kubeconfig={}", self.sim.kubeconfig().display());
        Running::start(self.name, self.program, &[kubeconfig])
    }

    /// Lets the kubeconfig have the first so many clusters.
    async fn has_contexts(&mut self, count: usize) -> Result<()> {
        self.sim.command(&format!("contexts {count} 0 0")).await.map(drop)
    }

    /// The memory of a subject when there is nothing to copy.
    async fn idle_memory(&mut self) -> Result<f64> {
        let process = self.start()?;
        sleep(IDLE).await;
        let kb = process.usage()?.rss_kb;
        process.stop().await?;
        Ok(kb)
    }

    async fn before(&mut self, process: &Running) -> Result<Before> {
        Ok(Before {
            usage: process.usage()?,
            requests: self.sim.figures("sync requests").await?,
        })
    }

    /// The requests for ConfigMaps since then whose names end with this word.
    async fn since(&mut self, before: &Before, word: &str) -> Result<f64> {
        let now = self.sim.figures("sync requests").await?;
        let count = |figures: &Figures| -> f64 {
            let counted = figures.iter().filter(|(name, _)| name.ends_with(word));
            counted.map(|(_, count)| count).sum()
        };
        Ok(count(&now) - count(&before.requests))
    }

    /// Waits until all is copied. Returns when that was.
    async fn copied(&mut self) -> Result<u64> {
        self.sim.command_for("sync wait", LIMIT).await
    }

    /// The first copies, idleness, and a burst.
    async fn initial(&mut self) -> Result<()> {
        let process = self.start()?;
        let none = Before {
            usage: Usage::default(),
            requests: self.sim.figures("sync requests").await?,
        };
        let at = self.copied().await?;
        let usage = process.usage()?;
        let seconds = at.saturating_sub(process.started()) as f64 / 1e9;
        let row = Row {
            synced_s: Some(seconds),
            cpu_s: Some(usage.cpu.as_secs_f64()),
            rss_peak_kb: Some(usage.peak_kb),
            fds: Some(usage.fds),
            value: Some(self.total() / seconds),
            ..self.row("initial")
        };
        self.rows.push(row);
        self.value(
            "initial: CPU us an object",
            usage.cpu.as_secs_f64() * 1e6 / self.total(),
        );
        let (gets, writes) = (
            self.since(&none, "gets").await?,
            self.since(&none, "writes").await?,
        );
        self.value("initial: GETs an object", gets / self.total());
        self.value("initial: writes an object", writes / self.total());

        sleep(IDLE).await;
        let before = self.before(&process).await?;
        sleep(IDLE).await;
        let usage = process.usage()?;
        let used = usage.cpu.saturating_sub(before.usage.cpu);
        let row = Row {
            idle_cpu: Some(used.as_secs_f64() / IDLE.as_secs_f64()),
            rss_idle_kb: Some(usage.rss_kb),
            ..self.row("idle")
        };
        self.rows.push(row);

        let before = self.before(&process).await?;
        let begun = crate::subject::message::now();
        self.sim.command(&format!("sync burst {EDITS}")).await?;
        let at = self.copied().await?;
        let used = process.usage()?.cpu.saturating_sub(before.usage.cpu);
        let row = Row {
            synced_s: Some(at.saturating_sub(begun) as f64 / 1e9),
            cpu_s: Some(used.as_secs_f64()),
            value: Some(self.since(&before, "writes").await?),
            ..self.row("burst")
        };
        self.rows.push(row);
        let gets = self.since(&before, "gets").await?;
        self.value("burst: GETs", gets);
        process.stop().await
    }

    /// A restart when all is as it should be, and then one more cluster. `empty` is the memory without objects.
    async fn restart(&mut self, empty: f64) -> Result<()> {
        let requests = self.sim.figures("sync requests").await?;
        let process = self.start()?;
        let none = Before {
            usage: Usage::default(),
            requests,
        };
        // No message tells that a subject has seen all. The busiest one is idle long before.
        sleep(2 * IDLE).await;
        let usage = process.usage()?;
        let row = Row {
            cpu_s: Some(usage.cpu.as_secs_f64()),
            rss_idle_kb: Some(usage.rss_kb),
            lists: Some(self.since(&none, "lists").await?),
            watches: Some(self.since(&none, "watches").await?),
            value: Some(self.since(&none, "writes").await?),
            ..self.row("restart")
        };
        self.rows.push(row);
        let gets = self.since(&none, "gets").await?;
        self.value("restart: GETs", gets);
        self.value("bytes an object", (usage.rss_kb - empty) * 1000.0 / self.total());
        // The program by hand does not follow its kubeconfig.
        if self.name == "mcr-sync" {
            let before = self.before(&process).await?;
            self.has_contexts(self.sim.clusters()).await?;
            sleep(IDLE).await;
            let used = process.usage()?.cpu.saturating_sub(before.usage.cpu);
            self.value("a cluster joins: CPU ms in 10 s", used.as_secs_f64() * 1000.0);
        }
        process.stop().await
    }
}
