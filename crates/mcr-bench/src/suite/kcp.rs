//! `kcp`: the workspaces of a real kcp as clusters, for mcr and for programs that someone brings.
//!
//! A run binds a quarter of the workspaces, then the others, writes to an object of each, and unbinds the others again, once for each
//! subject. Then it fills all workspaces with objects and starts the subjects again, in turns.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use super::{Session, round::REST};
use crate::{
    driver::kcp::{Consumer, KcpSubject, World},
    row::Row,
    stats::percentile,
    subject::message::now,
};

/// The environment variable with the path of a kubeconfig of kcp's admin.
pub const KUBECONFIG: &str = "MCR_KCP_KUBECONFIG";

/// The longest that a subject may take for one step.
const LIMIT: Duration = Duration::from_secs(120);

/// The pause between two requests that are measured one after the other.
const PAUSE: Duration = Duration::from_millis(20);

/// How often each subject starts again in a run.
const RESTARTS: usize = 3;

/// The object that is written to.
const WRITTEN: &str = "w-0";

/// A program that is measured.
struct Program {
    name: String,
    path: PathBuf,
}

/// Runs the suite.
///
/// # Errors
///
/// When no kcp is named, when it refuses something, and when a subject misses something.
pub async fn run(session: &mut Session<'_>) -> Result<Vec<Row>> {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG) else {
        bail!(
            "suite kcp needs a real kcp: set {KUBECONFIG} to the path of a kubeconfig of its admin in workspace root"
        );
    };
    let programs = programs(session)?;
    let count = session.options.clusters.unwrap_or(200);
    let objects = session.options.objects.unwrap_or(50).max(1);
    let world = World::on(Path::new(&kubeconfig), "bench-").await?;
    let consumers = world.consumers("bench-", count).await?;
    if let Some(first) = consumers.first() {
        // The first binding of an export takes kcp seconds.
        world.bind(first).await?;
        world.create_widget(first, WRITTEN, 0).await?;
        world.unbind(first).await?;
    }
    let pause = session.options.idle.unwrap_or(REST);
    let mut runs = Vec::new();
    for run in 0..session.options.runs {
        let mut order: Vec<&Program> = programs.iter().collect();
        order.rotate_left(run % programs.len());
        for program in &order {
            let mut round = Round::new(&world, program, &consumers, pause);
            round
                .lives()
                .await
                .with_context(|| format!("kcp {}", program.name))?;
            round
                .rows
                .into_iter()
                .for_each(|row| session.ran(run, row, &mut runs));
        }
        for row in restarts(&world, &order, &consumers, objects, pause).await? {
            session.ran(run, row, &mut runs);
        }
        unbind_all(&world, &consumers).await?;
    }
    Ok(session.report(&runs))
}

fn programs(session: &Session<'_>) -> Result<Vec<Program>> {
    let own = Program {
        name: "mcr".to_owned(),
        path: session.programs.kcp()?,
    };
    let brought = session.options.brought.iter().map(|path| {
        let name = path.file_stem().context("a subject is no file")?;
        anyhow::Ok(Program {
            name: name.to_string_lossy().into_owned(),
            path: path.clone(),
        })
    });
    [Ok(own)].into_iter().chain(brought).collect()
}

/// What one subject does while workspaces come and go.
struct Round<'a> {
    world: &'a World,
    program: &'a Program,
    consumers: &'a [Consumer],
    /// Before memory and CPU time are read.
    pause: Duration,
    rows: Vec<Row>,
}

impl<'a> Round<'a> {
    fn new(world: &'a World, program: &'a Program, consumers: &'a [Consumer], pause: Duration) -> Self {
        Self {
            world,
            program,
            consumers,
            pause,
            rows: Vec::new(),
        }
    }

    fn row(&self, variant: &str, clusters: usize) -> Row {
        Row {
            variant: variant.to_owned(),
            ..Row::new("kcp", &self.program.name, clusters, 1)
        }
    }

    fn value(&mut self, variant: &str, clusters: usize, value: f64) {
        let row = self.row(variant, clusters);
        self.rows.push(Row {
            value: Some(value),
            ..row
        });
    }

    fn latency(&mut self, variant: &str, clusters: usize, nanos: &[f64]) {
        let at = |percent| percentile(nanos, percent).map(|nanos| nanos / 1e6);
        let row = self.row(variant, clusters);
        self.rows.push(Row {
            p50_ms: at(50.0),
            p99_ms: at(99.0),
            ..row
        });
    }

    async fn lives(&mut self) -> Result<()> {
        let (all, few) = (self.consumers, self.consumers.len() / 4);
        let mut subject = KcpSubject::start(&self.program.path, self.world.kubeconfig(), "widgets")?;
        sleep(self.pause).await;
        self.held(&mut subject, "", 0).await?;
        self.bound(&subject, &all[..few], Some(few)).await?;
        self.written(&subject, &all[..few], 4, 1).await?;
        self.written(&subject, &all[..few], 8, 10).await?;
        let before = self.held(&mut subject, "", few).await?;
        self.bound(&subject, &all[few..], Some(all.len())).await?;
        self.written(&subject, all, 2, 1).await?;
        self.written(&subject, all, 2, 10).await?;
        let after = self.held(&mut subject, "", all.len()).await?;
        let more = (all.len() - few).max(1);
        self.value("kB a workspace", all.len(), (after - before) / more as f64);
        self.unbound(&subject, &all[few..]).await?;
        self.held(&mut subject, " after unbinding", few).await?;
        // Memory that an allocator keeps after the first time is used again the second time. What is leaked is not.
        self.bound(&subject, &all[few..], None).await?;
        self.unbound(&subject, &all[few..]).await?;
        self.held(&mut subject, " after unbinding twice", few).await?;
        subject.stop().await?;
        unbind_all(self.world, &all[..few]).await
    }

    /// Memory, tasks and sockets while idle. Returns the memory.
    async fn held(&mut self, subject: &mut KcpSubject, when: &str, clusters: usize) -> Result<f64> {
        sleep(self.pause).await;
        let kb = subject.usage()?.rss_kb;
        self.value(&format!("kB{when}"), clusters, kb);
        let tasks = subject.tasks().await?;
        self.value(&format!("tasks{when}"), clusters, tasks as f64);
        self.value(&format!("sockets{when}"), clusters, subject.sockets()? as f64);
        Ok(kb)
    }

    /// Binds workspaces one after the other, and creates an object in each. `row_of` is how many are bound then, if the times
    /// are rows.
    async fn bound(
        &mut self,
        subject: &KcpSubject,
        consumers: &[Consumer],
        row_of: Option<usize>,
    ) -> Result<()> {
        let (mut engaged, mut reconciled) = (Vec::new(), Vec::new());
        for consumer in consumers {
            let ready = self.world.bind(consumer).await?;
            let created = self.world.create_widget(consumer, WRITTEN, now()).await?;
            let id = consumer.id.clone();
            let object = (id.clone(), format!("default/{WRITTEN}"));
            let seen = subject.until(LIMIT, "a new workspace and its object are seen", |events| {
                Some((*events.engaged.get(&id)?, *events.objects.get(&object)?))
            });
            let seen = seen.await?;
            engaged.push(seen.0 as f64 - ready as f64);
            reconciled.push(seen.1 as f64 - created as f64);
            sleep(PAUSE).await;
        }
        if let Some(clusters) = row_of {
            self.latency("bound to engaged", clusters, &engaged);
            self.latency("created to reconciled", clusters, &reconciled);
        }
        Ok(())
    }

    /// Writes so many `times` to one object of each workspace, to so many workspaces `at_once`. A pause follows each write if
    /// that is one.
    async fn written(
        &mut self,
        subject: &KcpSubject,
        consumers: &[Consumer],
        times: usize,
        at_once: usize,
    ) -> Result<()> {
        sleep(self.pause).await;
        let before = subject.usage()?.cpu;
        let mut writes: Vec<((String, u64), u64)> = Vec::new();
        for _ in 0..times {
            // A round ends before the next begins: two writes to one object at once could be applied in another order.
            let round = stream::iter(consumers).map(async |consumer| {
                let stamp = now();
                let done = self.world.write_stamp(consumer, WRITTEN, stamp).await?;
                if at_once == 1 {
                    sleep(PAUSE).await;
                }
                anyhow::Ok(((consumer.id.clone(), stamp), done))
            });
            let round: Vec<_> = round.buffer_unordered(at_once).try_collect().await?;
            writes.extend(round);
        }
        let seen = subject.until(LIMIT, "all writes are seen", |events| {
            let of = |((id, stamp), done): &((String, u64), u64)| {
                Some(events.written(id, *stamp)? as f64 - *done as f64)
            };
            writes.iter().map(of).collect::<Option<Vec<f64>>>()
        });
        let seen = seen.await?;
        let cpu = subject.usage()?.cpu.saturating_sub(before);
        let us = cpu.as_secs_f64() * 1e6 / writes.len().max(1) as f64;
        let how = if at_once == 1 {
            String::new()
        } else {
            format!(", {at_once} at once")
        };
        self.value(&format!("CPU us an event{how}"), consumers.len(), us);
        self.latency(&format!("written to reconciled{how}"), consumers.len(), &seen);
        Ok(())
    }

    /// Unbinds workspaces, ten at a time.
    async fn unbound(&mut self, subject: &KcpSubject, consumers: &[Consumer]) -> Result<()> {
        unbind_all(self.world, consumers).await?;
        subject
            .until(LIMIT, "all unbound workspaces have left", |events| {
                let left = |consumer: &Consumer| events.disengaged.contains_key(&consumer.id);
                consumers.iter().all(left).then_some(())
            })
            .await
    }
}

async fn unbind_all(world: &World, consumers: &[Consumer]) -> Result<()> {
    let unbound = stream::iter(consumers).map(|consumer| world.unbind(consumer));
    unbound.buffer_unordered(10).try_collect().await
}

/// Starts the subjects in turns when all workspaces are bound and full.
async fn restarts(
    world: &World,
    programs: &[&Program],
    consumers: &[Consumer],
    objects: usize,
    pause: Duration,
) -> Result<Vec<Row>> {
    let filled = stream::iter(consumers).map(async |consumer| {
        world.bind(consumer).await?;
        for number in 0..objects {
            world
                .create_widget(consumer, &format!("w-{number}"), now())
                .await?;
        }
        anyhow::Ok(())
    });
    filled.buffer_unordered(8).try_collect::<()>().await?;
    let (count, total) = (consumers.len(), consumers.len() * objects);
    let mut rows = Vec::new();
    for turn in 0..RESTARTS {
        let mut order = programs.to_vec();
        order.rotate_left(turn % programs.len());
        for program in order {
            sleep(pause).await;
            let before = world.list(total).await?.as_secs_f64();
            sleep(pause).await;
            let subject = KcpSubject::start(&program.path, world.kubeconfig(), "widgets")?;
            let last = subject.until(LIMIT, "all objects are reconciled", |events| {
                (events.objects.len() >= total).then(|| events.objects.values().max().copied())?
            });
            let last = last
                .await
                .with_context(|| format!("restarting {}", program.name))?;
            let cpu = subject.usage()?.cpu;
            let synced = last.saturating_sub(subject.started()) as f64 / 1e9;
            sleep(2 * pause).await;
            let usage = subject.usage()?;
            subject.stop().await?;
            sleep(pause).await;
            // The mean of a list before and one after: kcp's time for one varies.
            let list = f64::midpoint(before, world.list(total).await?.as_secs_f64());
            rows.push(Row {
                synced_s: Some(list),
                ..Row::new("kcp", "a list", count, objects)
            });
            rows.push(Row {
                variant: "restart".to_owned(),
                synced_s: Some(synced),
                cpu_s: Some(cpu.as_secs_f64()),
                rss_idle_kb: Some(usage.rss_kb),
                rss_peak_kb: Some(usage.peak_kb),
                value: Some(synced / list),
                ..Row::new("kcp", &program.name, count, objects)
            });
        }
    }
    Ok(rows)
}
