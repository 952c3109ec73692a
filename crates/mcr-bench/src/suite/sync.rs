//! `sync`: 10,000 ConfigMaps of 500 clusters are copied to one more cluster, by mcr-sync and by hand on kube-rs.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tokio::time::sleep;

use crate::{
    alone::Figures,
    driver::{Running, Servers},
    proc::Usage,
    row::{Figure, Row},
    run::Session,
    simulator::SimArgs,
    subject::message::now,
};

/// The longest that a subject may take to copy all.
const LIMIT: Duration = Duration::from_secs(300);

/// How many edits a burst has.
const EDITS: usize = 10_000;

/// How long a subject is idle before memory is read, and how long idle CPU is measured.
const IDLE: Duration = Duration::from_secs(10);

pub(super) async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let subjects = [
        ("mcr-sync", "mcr-bench-sync"),
        ("kube-rs-by-hand", "mcr-bench-sync-by-hand"),
    ];
    let measure = async |session: &Session<'_>, _, (name, program)| {
        let rows = one(session, name, session.programs.beside(program)?).await;
        rows.with_context(|| format!("sync {name}"))
    };
    session.take_turns(&subjects, measure).await
}

/// A subject and its servers.
struct Round {
    name: &'static str,
    program: PathBuf,
    objects: usize,
    sim: Servers,
    rows: Vec<Row>,
}

/// The state before a part that is measured.
#[derive(Default)]
struct Before {
    usage: Usage,
    requests: Figures,
}

async fn one(session: &Session<'_>, name: &'static str, program: PathBuf) -> Result<Vec<Row>> {
    let clusters = session.options.clusters.unwrap_or(500);
    let objects = session.options.objects.unwrap_or(20);
    // One for the targets, and one that joins in the end.
    let args = SimArgs {
        audit: 1_000_000,
        ..SimArgs::new(clusters + 2, 0)
    };
    let mut round = Round {
        name,
        program,
        objects,
        sim: Servers::sim(&session.programs, args).await?,
        rows: Vec::new(),
    };
    round.has_contexts(clusters + 1).await?;
    let empty = round.idle_memory().await?;
    let fill = format!("sync fill {} {objects}", clusters + 1);
    round.sim.command(&fill).await?;
    round.initial().await?;
    round.restart(empty).await?;
    Ok(round.rows)
}

impl Round {
    fn row(&self, variant: &str) -> Row {
        Row::new("sync", self.name, self.sim.clusters - 2, self.objects).variant(variant)
    }

    fn value(&mut self, variant: &str, value: f64) {
        let row = self.row(variant).with(Figure::Value, value);
        self.rows.push(row);
    }

    /// How many objects are copied.
    fn total(&self) -> f64 {
        ((self.sim.clusters - 2) * self.objects) as f64
    }

    fn start(&self) -> Result<Running> {
        let kubeconfig = format!("--kubeconfig={}", self.sim.kubeconfig.display());
        let args = [self.name.to_owned(), kubeconfig];
        Running::start(self.name, &self.program, &args)
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

    async fn before(&mut self, usage: Usage) -> Result<Before> {
        let requests = self.sim.figures("sync requests").await?;
        Ok(Before { usage, requests })
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
        let none = self.before(Usage::default()).await?;
        let at = self.copied().await?;
        let usage = process.usage()?;
        let seconds = at.saturating_sub(process.started) as f64 / 1e9;
        let total = self.total();
        let row = self
            .row("initial")
            .with(Figure::SyncedS, seconds)
            .with(Figure::Fds, usage.fds);
        let row = row.with(Figure::CpuS, usage.cpu.as_secs_f64());
        let row = row.with(Figure::RssPeakKb, usage.peak_kb);
        self.rows.push(row.with(Figure::Value, total / seconds));
        self.value("initial: CPU us an object", usage.cpu.as_secs_f64() * 1e6 / total);
        let (gets, writes) = (
            self.since(&none, "gets").await?,
            self.since(&none, "writes").await?,
        );
        self.value("initial: GETs an object", gets / total);
        self.value("initial: writes an object", writes / total);

        sleep(IDLE).await;
        let before = self.before(process.usage()?).await?;
        sleep(IDLE).await;
        let usage = process.usage()?;
        let used = usage.cpu.saturating_sub(before.usage.cpu);
        let row = self.row("idle").with(Figure::RssIdleKb, usage.rss_kb);
        self.rows
            .push(row.with(Figure::IdleCpu, used.as_secs_f64() / IDLE.as_secs_f64()));

        let before = self.before(process.usage()?).await?;
        let begun = now();
        self.sim.command(&format!("sync burst {EDITS}")).await?;
        let at = self.copied().await?;
        let used = process.usage()?.cpu.saturating_sub(before.usage.cpu);
        let row = self
            .row("burst")
            .with(Figure::SyncedS, at.saturating_sub(begun) as f64 / 1e9);
        let row = row.with(Figure::CpuS, used.as_secs_f64());
        let row = row.with(Figure::Value, self.since(&before, "writes").await?);
        self.rows.push(row);
        let gets = self.since(&before, "gets").await?;
        self.value("burst: GETs", gets);
        process.stop().await
    }

    /// A restart when all is as it should be, and then one more cluster. `empty` is the memory without objects.
    async fn restart(&mut self, empty: f64) -> Result<()> {
        let none = self.before(Usage::default()).await?;
        let process = self.start()?;
        // No message shows that a subject has seen all. The busiest one is idle long before.
        sleep(2 * IDLE).await;
        let usage = process.usage()?;
        let row = self.row("restart").with(Figure::RssIdleKb, usage.rss_kb);
        let row = row.with(Figure::CpuS, usage.cpu.as_secs_f64());
        let row = row.with(Figure::Lists, self.since(&none, "lists").await?);
        let row = row.with(Figure::Watches, self.since(&none, "watches").await?);
        let row = row.with(Figure::Value, self.since(&none, "writes").await?);
        self.rows.push(row);
        let gets = self.since(&none, "gets").await?;
        self.value("restart: GETs", gets);
        self.value("bytes an object", (usage.rss_kb - empty) * 1000.0 / self.total());
        // The program by hand does not follow its kubeconfig.
        if self.name == "mcr-sync" {
            let before = process.usage()?.cpu;
            self.has_contexts(self.sim.clusters).await?;
            sleep(IDLE).await;
            let used = process.usage()?.cpu.saturating_sub(before);
            self.value("a cluster joins: CPU ms in 10 s", used.as_secs_f64() * 1000.0);
        }
        process.stop().await
    }
}
