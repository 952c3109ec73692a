//! `mcr clusters`: which clusters there are, and how they are.

mod controller;
mod local;
mod report;
mod watch;

use std::time::Duration;

use anyhow::bail;
use http::Uri;

use crate::{
    clusters::report::Report,
    names::Wanted,
    output::{self, Progress},
    providers::{ClusterFlags, Linked, ProviderOptions, choose},
    stop, values,
};

/// The flags of `mcr clusters`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClustersArgs {
    #[command(flatten)]
    clusters: ClusterFlags,
    /// Only these clusters: names, or ends of names such as eu of kind#eu, if only one cluster has them
    #[arg(value_name = "CLUSTER")]
    names: Vec<String>,
    /// Ask a controller that runs, at the address where it serves /clusters, instead of connecting
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Clusters",
        conflicts_with = "provider"
    )]
    server: Option<Uri>,
    /// Go on and print a line for each change
    #[arg(long, short = 'w', help_heading = "Output")]
    watch: bool,
    /// How to print
    #[arg(long, short = 'o', value_enum, default_value_t, help_heading = "Output")]
    output: Format,
    /// How long clusters have to answer
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::duration, help_heading = "Output")]
    timeout: Duration,
    /// Exit with code 1 unless all clusters are Ready
    #[arg(long, help_heading = "Output", conflicts_with = "watch")]
    fail_unless_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Table,
    /// For people, with addresses
    Wide,
    /// As /clusters of a controller; with --watch one object a line
    Json,
}

/// Whether the question was answered, and well where that was asked.
pub(crate) async fn run(args: ClustersArgs, linked: &[Linked]) -> anyhow::Result<bool> {
    let stop = stop::at_signal();
    let mut wanted = Wanted::new(&args.names);
    if let Some(server) = &args.server {
        let controller = controller::Controller::new(server.clone(), args.timeout)?;
        if args.watch {
            let look = async || Ok(controller.report().await?.only(&mut wanted)?);
            watch::follow(look, &stop, args.output == Format::Json, controller::PAUSE).await?;
            return Ok(true);
        }
        let mut report = tokio::select! {
            report = controller.report() => report?,
            () = stop.cancelled() => return Ok(true),
        };
        report.all_known = true;
        let report = report.only(&mut wanted)?;
        return print(&args, &report, &wanted);
    }
    let chosen = choose(&args.clusters, linked)?;
    let options = ProviderOptions::new(args.clusters.clone());
    let running = crate::providers::start(chosen, options).await?;
    let result = ask(&args, wanted, &running, &stop).await;
    running.stop().await;
    result
}

async fn ask(
    args: &ClustersArgs,
    mut wanted: Wanted,
    running: &crate::providers::Running,
    stop: &tokio_util::sync::CancellationToken,
) -> anyhow::Result<bool> {
    for (linked, why) in &running.failed {
        eprintln!("provider {}: {}", linked.name, output::printable(why));
    }
    if running.taps.is_empty() {
        bail!("no provider can be asked; `mcr doctor` with the same flags says more");
    }
    let mut versions = local::Versions::default();
    if args.watch {
        let versions = tokio::sync::Mutex::new(versions);
        let look = async || {
            let report = local::report(running, &mut *versions.lock().await).await?;
            Ok(report.only(&mut wanted)?)
        };
        watch::follow(look, stop, args.output == Format::Json, watch::PAUSE).await?;
        return Ok(true);
    }
    let deadline = tokio::time::Instant::now() + args.timeout;
    let mut progress = Progress::new();
    running.decided(deadline, stop, |text| progress.say(text)).await;
    progress.say("asking for versions");
    let mut report = local::report(running, &mut versions).await?;
    drop(progress);
    // Whether or not a provider still owes some: they had their time.
    report.all_known = true;
    let report = report.only(&mut wanted)?;
    print(args, &report, &wanted)
}

fn print(args: &ClustersArgs, report: &Report, wanted: &Wanted) -> anyhow::Result<bool> {
    let missing = wanted.missing();
    let text = match args.output {
        Format::Json => output::json(report)?,
        _ => report.table(args.output == Format::Wide, jiff::Timestamp::now()),
    };
    output::print(&text)?;
    for trouble in report.troubles() {
        eprintln!("{trouble}");
    }
    if !missing.is_empty() {
        bail!(
            "there is no cluster {}; `mcr doctor {}` looks for why",
            missing.join(", "),
            missing.join(" ")
        );
    }
    if args.output != Format::Json && report.is_empty() {
        eprintln!("there are no clusters");
    }
    Ok(!args.fail_unless_ready || report.is_ready())
}
