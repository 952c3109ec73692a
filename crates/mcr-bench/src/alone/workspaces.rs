//! Measures workspaces of a double of kcp with two shards as clusters: the memory of each, what joining and an event take, and
//! what a shard that is lost and comes back costs.
//!
//! The double runs in this process. Its threads have a name of their own, so that its CPU time does not count.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use mcr::{
    Access, Cluster, ClusterState, Fleet, FleetEvent,
    core::{Availability, Change, Discovery, DiscoverySettings, Provider, Trust},
};
use mcr_provider_kcp::KcpProvider;
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Figures, Heap, Runs, allocated,
    double::Double,
    fleets::{PATIENCE, Seen},
};
use crate::{proc::cpu_of_threads, stats};

/// The number of workspaces that join one by one, and of those to which events come.
const ONE_BY_ONE: usize = 100;

/// How often each of them gets an event.
const ROUNDS: usize = 100;

/// The provider, and when it has announced a cluster that can be connected: its APIBinding is ready.
struct Announcing {
    provider: KcpProvider,
    first: Arc<Mutex<Option<Instant>>>,
}

impl Provider for Announcing {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let first = self.first.clone();
        let changes = self.provider.discover_with(stop, settings);
        changes
            .inspect(move |change| {
                if let Ok(Change::Upsert(spec)) = change
                    && spec.availability == Availability::Available
                {
                    first.lock().get_or_insert_with(Instant::now);
                }
            })
            .boxed()
    }
}

/// A fleet of the workspaces, with a controller over their ConfigMaps.
struct Running {
    runs: Runs,
    seen: Arc<Seen>,
    announced: Arc<Mutex<Option<Instant>>>,
}

impl Running {
    fn start(kubeconfig: String) -> Result<Self> {
        let provider = KcpProvider::builder()
            .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
            .slice(Double::EXPORT)
            .build()?;
        let announced = Arc::default();
        let provider = Announcing {
            provider,
            first: Arc::clone(&announced),
        };
        let runs = Runs::start(Fleet::builder().provider(provider).build());
        let seen = runs.count()?;
        Ok(Self {
            runs,
            seen,
            announced,
        })
    }

    /// Binds the API in one workspace after the other. Returns the median of the times in which an announced one was ready in the
    /// fleet, and the CPU time of each, its first reconcile included, both in microseconds.
    async fn join_one_by_one(&self, double: &Double) -> Result<(f64, f64)> {
        let mut events = self.runs.fleet.subscribe();
        // Those that are there.
        for _ in 0..self.runs.fleet.clusters().len() {
            events.next().await;
        }
        let (mut waits, cpu) = (Vec::new(), cpu()?);
        for number in 0..double.unbound() {
            let reconciled = self.seen.reconciled();
            self.announced.lock().take();
            let id = double.unbound_id(number)?;
            // In a task of its own: the workspace may be ready before the double has done all that follows the binding.
            let joining = tokio::spawn(async move {
                while !is_ready(&events.next().await, &id) {}
                (events, Instant::now())
            });
            double.bind(number).await?;
            let joined = timeout(PATIENCE, joining).await;
            let (same, engaged) = joined.context("a workspace did not join within two minutes")??;
            events = same;
            let announced = *self.announced.lock();
            let announced = announced.context("a cluster that no provider announced")?;
            waits.push(engaged.saturating_duration_since(announced).as_secs_f64() * 1e6);
            self.seen.at_least(reconciled + 1).await?;
        }
        let cpu = (self::cpu()? - cpu).as_secs_f64() * 1e6 / waits.len().max(1) as f64;
        Ok((stats::median(&waits).context("no workspace joined")?, cpu))
    }

    /// The CPU time of an event, its reconcile included, in microseconds.
    async fn event_cpu(&self, double: &Double) -> Result<f64> {
        let (cpu, mut events) = (cpu()?, 0);
        for round in 1..=ROUNDS {
            let wanted = self.seen.reconciled();
            let written = double.write(ONE_BY_ONE, round as u64).await?;
            events += written;
            self.seen.at_least(wanted + written).await?;
        }
        Ok((self::cpu()? - cpu).as_secs_f64() * 1e6 / events.max(1) as f64)
    }

    /// Loses a shard, which then forgets its history, and measures until all is as before.
    async fn lose_a_shard(&self, double: &Double) -> Result<Figures> {
        let (before, reconciled) = (double.asked(), self.seen.reconciled());
        let on_last = double.on_last_shard();
        let clusters = self.runs.fleet.clusters().into_iter();
        let on_shard: Vec<Cluster> = clusters
            .filter(|of| on_last.contains(of.name().as_str()))
            .collect();
        let all = async |what: &str, wanted: fn(&ClusterState) -> bool| {
            let begun = Instant::now();
            while !on_shard.iter().all(|cluster| wanted(&cluster.state())) {
                if begun.elapsed() > PATIENCE {
                    bail!("not all workspaces of the shard were {what} within two minutes");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        };
        double.lose();
        all("unreachable", |state| {
            matches!(state, ClusterState::Unreachable { .. })
        })
        .await?;
        double.find_again().await?;
        let begun = Instant::now();
        all("ready", ClusterState::is_ready).await?;
        let took = begun.elapsed();
        // Both kinds are listed again.
        let begun = Instant::now();
        while double.asked().lists < before.lists + Double::KINDS && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // What should not come comes late.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let lists = (double.asked().lists - before.lists) as f64;
        Ok(Figures::from([
            ("lost_ready_s".to_owned(), took.as_secs_f64()),
            ("lost_lists".to_owned(), lists / Double::KINDS as f64),
            (
                "lost_reconciles".to_owned(),
                (self.seen.reconciled() - reconciled) as f64,
            ),
            ("lost_deletes".to_owned(), self.seen.deleted() as f64),
        ]))
    }
}

/// Whether the cluster of this name is ready now.
fn is_ready(event: &FleetEvent, name: &str) -> bool {
    match event {
        FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster) => {
            cluster.name().as_str() == name && cluster.state().is_ready()
        }
        _ => false,
    }
}

/// CPU time of mcr in this process.
fn cpu() -> Result<Duration> {
    cpu_of_threads(|name| name != Double::THREADS)
        .context("this kernel does not count CPU time by thread (schedstat)")
}

pub(super) async fn measure(workspaces: usize, heap: Heap) -> Result<Figures> {
    let double = Double::start(workspaces, ONE_BY_ONE).await?;
    let (heap_before, begun) = (allocated(heap)?, Instant::now());
    let running = Running::start(double.kubeconfig())?;
    running.seen.at_least(workspaces).await?;
    let took = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = allocated(heap)?.saturating_sub(heap_before) as f64 / workspaces as f64;
    let asked = double.asked();
    let (engage, join) = running.join_one_by_one(&double).await?;
    let mut figures = Figures::from([
        ("all_s".to_owned(), took.as_secs_f64()),
        ("bytes".to_owned(), bytes),
        ("lists".to_owned(), asked.lists as f64),
        ("watches".to_owned(), asked.watches as f64),
        ("engage_us".to_owned(), engage),
        ("join_cpu_us".to_owned(), join),
        ("event_cpu_us".to_owned(), running.event_cpu(&double).await?),
    ]);
    figures.extend(running.lose_a_shard(&double).await?);
    Ok(figures)
}
