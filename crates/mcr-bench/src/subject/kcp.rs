//! The subject of suite `kcp`: mcr with the workspaces of an APIExport.
//!
//! It tells events in lines of words, so that a program in another language can do the same:
//!
//! ```text
//! engaged 344qdshnqz45fjlp 1763934000000000000
//! reconciled 344qdshnqz45fjlp default/w-0 17 1763934000000000000
//! gone 344qdshnqz45fjlp default/w-0 1763934000000000000
//! disengaged 344qdshnqz45fjlp 1763934000000000000
//! ```
//!
//! The last word is the time in nanoseconds since 1970. `reconciled` has the object's `spec.stamp`. To the line `tasks` on stdin
//! it answers `tasks 12 <time>`: its tasks, or goroutines.

use std::{collections::HashSet, fmt, io::Write, path::PathBuf, sync::Arc};

use anyhow::Result;
use kube::CustomResource;
use mcr::{
    Action, BoxError, ClusterSelector, Controller, Fleet, Manager, Request,
    core::{Access, ClusterName, FleetEvent, Trust},
};
use mcr_provider_kcp::KcpProvider;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    runtime::Handle,
};
use tokio_util::sync::CancellationToken;

use super::message::now;

/// The arguments of a subject of suite `kcp`, whatever its language.
#[derive(clap::Args, Clone, Debug)]
pub struct KcpArgs {
    /// Its server is the workspace of the endpoint slice
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The name of the endpoint slice
    #[arg(long)]
    pub slice: String,
}

/// The exported kind.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "example.io",
    version = "v1",
    kind = "Widget",
    plural = "widgets",
    namespaced,
    schema = "disabled"
)]
pub struct WidgetSpec {
    /// The number of the last write.
    pub stamp: u64,
    /// Text.
    #[serde(default)]
    pub size: String,
}

/// Runs the subject until it is killed, or until its stdin ends.
///
/// # Errors
///
/// When the manager can't start, or fails.
pub fn run(args: KcpArgs) -> Result<()> {
    // Only if `RUST_LOG` is set, because logging costs time.
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(manage(args))
}

async fn manage(args: KcpArgs) -> Result<()> {
    let kubeconfig = std::fs::read(args.kubeconfig)?;
    let provider = KcpProvider::builder()
        .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
        .slice(args.slice)
        .build()?;
    let controller = Controller::<Widget>::new("bench")
        .clusters(ClusterSelector::all())
        .build(
            |request: Request<Widget>, _: Arc<()>| async move {
                let cluster = request.cluster.name();
                let (namespace, name) = (request.namespace().unwrap_or_default(), request.name());
                match request.live() {
                    Some(widget) => print(format_args!(
                        "reconciled {cluster} {namespace}/{name} {}",
                        widget.spec.stamp
                    )),
                    None => print(format_args!("gone {cluster} {namespace}/{name}")),
                }
                Ok::<_, BoxError>(Action::done())
            },
            Arc::new(()),
        );
    let stop = CancellationToken::new();
    let questions = stop.clone().drop_guard();
    let manager = Manager::builder()
        .provider(provider)
        .controller(controller)
        .task("members", |fleet, stop| async move {
            stop.run_until_cancelled(members(&fleet)).await;
            Ok(())
        })
        .task("questions", |_, stop| async move {
            stop.run_until_cancelled(answer()).await;
            drop(questions);
            Ok(())
        })
        .build()?;
    Ok(manager.run_until(stop).await?)
}

/// Tells when a cluster is ready for the first time, and when it leaves.
async fn members(fleet: &Fleet) {
    let mut events = fleet.subscribe();
    let mut on_row: HashSet<ClusterName> = HashSet::new();
    loop {
        match events.next().await {
            FleetEvent::Engaged(cluster) | FleetEvent::Updated(cluster)
                if cluster.state().is_ready() && on_row.insert(cluster.name().clone()) =>
            {
                print(format_args!("engaged {}", cluster.name()));
            }
            FleetEvent::Disengaged { name, .. } => {
                on_row.remove(&name);
                print(format_args!("disengaged {name}"));
            }
            _ => {}
        }
    }
}

/// Answers questions until stdin ends, so that the program does not outlive a driver that was killed.
async fn answer() {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.trim() == "tasks" {
            let tasks = Handle::current().metrics().num_alive_tasks();
            print(format_args!("tasks {tasks}"));
        }
    }
}

fn print(event: fmt::Arguments<'_>) {
    let line = format!("{event} {}\n", now());
    let mut out = std::io::stdout().lock();
    // Fails only if the driver is gone, which needs no message.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
