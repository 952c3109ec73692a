//! One controller, several real clusters that come, change and go: starts the clusters itself and shows what the
//! controller makes of it. `cargo xtask demo` is the short way to run it.

mod json;
mod lines;
mod live;
mod script;
mod seen;
mod show;
mod world;

use std::{io::IsTerminal, process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use clap::Parser;
use examples::{Format, stop_at_signal};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Controller, Manager};
use mcr_provider_file::FileProvider;
use seen::Seen;
use show::Show;
use world::Folder;

/// Watch one controller reconcile ConfigMaps in several real clusters while clusters join, change and leave.
///
/// Starts an etcd and API servers (each a cluster of its own), and a controller that knows them from kubeconfig files
/// in a folder. Then writes objects, adds a cluster, rotates a token, stops an API server and starts it again, and
/// removes a cluster, and says how long the controller took each time. Everything is removed at the end.
///
///   cargo xtask demo
///   cargo xtask demo --once --format json
#[derive(Parser)]
#[command(name = "demo", verbatim_doc_comment)]
struct Args {
    /// End when all steps are done, instead of going on until Ctrl-C; a step that fails or takes too long makes the
    /// exit code 1
    #[arg(long)]
    once: bool,
    /// How to print: a live table on a terminal and else a line for each step, or one JSON object for each step and
    /// one at the end
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

async fn run(args: Args) -> anyhow::Result<()> {
    let stop = stop_at_signal(None)?;
    let show: Arc<dyn Show> = match args.format {
        Format::Json => Arc::new(json::Json),
        Format::Text if std::io::stdout().is_terminal() => Arc::new(live::Live::default()),
        Format::Text => Arc::new(lines::Lines),
    };
    let folder = Folder::new()?;

    // The whole controller: kubeconfig files in, reconciles out.
    let seen = Arc::new(Seen::default());
    let controller = Controller::<ConfigMap>::new("demo").build(seen::reconcile, seen.clone());
    let manager = Manager::builder()
        .provider(FileProvider::builder().dir(folder.path()).build()?)
        .controller(controller)
        .shutdown_grace(Duration::from_secs(5))
        .build()?;
    let fleet = manager.fleet().clone();
    let managing = tokio::spawn(manager.run_until(stop.clone()));

    let drawing = tokio::spawn(show::redraw(
        show.clone(),
        fleet.clone(),
        seen.clone(),
        stop.clone(),
    ));
    let ended = stop
        .run_until_cancelled(script::run(&folder, &fleet, &seen, &*show))
        .await;
    let (world, summary) = ended.unzip();
    if let Some(summary) = &summary {
        show.clusters(&show::rows(&fleet, &seen));
        show.summary(summary);
        if let Some(Some(world)) = &world
            && summary.ok
            && !args.once
        {
            show.hint(&world.hint());
            stop.cancelled().await;
        }
    }
    // The clusters live until here, and nobody is shown how they all become unreachable.
    stop.cancel();
    let _ = drawing.await;
    managing.await??;
    drop(world);
    match summary {
        Some(summary) if !summary.ok => bail!("the demo failed at: {}", summary.failed()),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // What happens to the clusters is what the demo shows; as a log it would tear the table.
    examples::log_with("error,kube_client=off");
    examples::exit(run(args).await)
}
