//! `mcr clusters`: which clusters there are, and in which state.

mod controller;
mod details;
mod local;
mod report;
mod watch;

use std::time::Duration;

use anyhow::bail;
use http::Uri;
use mcr_core::doctor::Level;

pub(crate) use self::{
    controller::{Controller, ServerFlags},
    details::{Failing, Gating, InController},
    report::{Report, Row},
};
use crate::{
    colour::Colours,
    names::Wanted,
    output::{self, Progress},
    providers::{ClusterFlags, LinkedProvider, ProviderOptions, choose},
    stop, values,
};

/// The flags of `mcr clusters`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClustersArgs {
    #[command(flatten)]
    clusters: ClusterFlags,
    /// Show only these clusters: names, or unique ends of names, such as eu for all-clusters#eu
    #[arg(value_name = "CLUSTER")]
    names: Vec<String>,
    /// Ask a running controller at the address where it serves /clusters, instead of connecting to clusters
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Clusters",
        conflicts_with = "ClusterFlags"
    )]
    server: Option<Uri>,
    #[command(flatten, next_help_heading = "Clusters")]
    server_flags: ServerFlags,
    /// Keep running and print a line for each change
    #[arg(long, short = 'w', help_heading = "Output")]
    watch: bool,
    /// The output format
    #[arg(long, short = 'o', value_enum, default_value_t, help_heading = "Output")]
    output: Format,
    /// How long to wait for clusters to answer
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::duration, help_heading = "Output")]
    timeout: Duration,
    /// Exit with code 1 unless all clusters are Ready, without blocked kinds and failing objects
    #[arg(long, help_heading = "Output", conflicts_with = "watch")]
    fail_unless_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// A table
    #[default]
    Table,
    /// A table with addresses
    Wide,
    /// JSON as /clusters of a controller serves it; with --watch one object per line
    Json,
}

impl ClustersArgs {
    /// The output format of `--watch`.
    fn lines(&self) -> watch::Output {
        match self.output {
            Format::Json => watch::Output::Json,
            _ => watch::Output::Text(Colours::of_stdout()),
        }
    }
}

/// Shows the clusters. Returns whether no problem was found.
pub(crate) async fn run(args: ClustersArgs, linked: &[LinkedProvider]) -> anyhow::Result<bool> {
    let stop = stop::at_signal();
    let mut wanted = Wanted::new(&args.names);
    if let Some(server) = &args.server {
        let controller = Controller::new(server.clone(), &args.server_flags, args.timeout)?;
        if args.watch {
            let fetch_report = async || Ok(controller.report().await?.only(&mut wanted)?);
            watch::follow(fetch_report, &stop, args.lines(), controller::PAUSE).await?;
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
    let result = show_fleet(&args, wanted, &running, &stop).await;
    running.stop().await;
    result
}

/// Shows the clusters of the providers. Returns whether no problem was found.
async fn show_fleet(
    args: &ClustersArgs,
    mut wanted: Wanted,
    running: &crate::providers::Running,
    stop: &tokio_util::sync::CancellationToken,
) -> anyhow::Result<bool> {
    for (linked, why) in &running.failed {
        eprintln!("provider {}: {}", linked.name, output::printable(why));
    }
    let mut all_files = true;
    for finding in running.taps.iter().flat_map(|tap| tap.doctor.files()) {
        if finding.level == Level::Problem {
            eprintln!("{}", output::printable(&finding.message));
            all_files = false;
        }
    }
    if running.taps.is_empty() {
        bail!("no provider can be asked; `mcr doctor` with the same flags finds out why");
    }
    let mut versions = local::Versions::default();
    if args.watch {
        let versions = tokio::sync::Mutex::new(versions);
        let fetch_report = async || {
            let report = local::report(running, &mut *versions.lock().await).await?;
            Ok(report.only(&mut wanted)?)
        };
        watch::follow(fetch_report, stop, args.lines(), watch::PAUSE).await?;
        return Ok(true);
    }
    let deadline = tokio::time::Instant::now() + args.timeout;
    let mut progress = Progress::new();
    running
        .wait_until_known(deadline, stop, |text| progress.show(text))
        .await;
    progress.show("asking for versions");
    let mut report = local::report(running, &mut versions).await?;
    drop(progress);
    // All providers have had time to announce their clusters. A provider that has not done so does not make this report
    // incomplete.
    report.all_known = true;
    let report = report.only(&mut wanted)?;
    Ok(print(args, &report, &wanted)? && all_files)
}

fn print(args: &ClustersArgs, report: &Report, wanted: &Wanted) -> anyhow::Result<bool> {
    let missing = wanted.missing();
    let text = match args.output {
        Format::Json => output::json(report)?,
        _ => report.table(
            args.output == Format::Wide,
            jiff::Timestamp::now(),
            Colours::of_stdout(),
        ),
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
