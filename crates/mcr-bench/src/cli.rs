//! The command line.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    alone::{self, AloneArgs},
    driver::{Programs, Subject},
    row::Row,
    simulator::{self, SimArgs},
    subject::{self, SubjectArgs},
    suite::{self, Options, Session},
};

/// Measures mcr beside kube-rs and Go's controller-runtime, each in a process of its own.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    task: Option<Hidden>,
    #[command(flatten)]
    args: Args,
}

#[derive(Subcommand)]
enum Hidden {
    /// A subject
    #[command(hide = true)]
    Subject(SubjectArgs),
    /// Simulated API servers
    #[command(hide = true)]
    Sim(SimArgs),
    /// What is measured of mcr alone
    #[command(hide = true)]
    Alone(AloneArgs),
}

#[derive(clap::Args)]
struct Args {
    /// What to measure; all suites without it, and docs/benchmarks.md is written
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Which subjects, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// How many clusters, instead of the suite's number
    #[arg(long)]
    clusters: Option<usize>,
    /// How many objects in each cluster, instead of the suite's number
    #[arg(long)]
    objects: Option<usize>,
    /// On real API servers or simulated ones
    #[arg(long, value_enum, default_value = "real")]
    backend: BackendKind,
    /// Measure `fleet` on the clusters of this file
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Seconds between the sync and the look at memory
    #[arg(long, default_value_t = 6)]
    idle: u64,
    /// How many seconds `churn` takes [default: 120]
    #[arg(long)]
    seconds: Option<usize>,
    /// How to print rows
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The Go program, as `cargo xtask bench` has built it
    #[arg(long, hide = true)]
    go: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Suite {
    /// All objects of all clusters, from the start
    Fleet,
    /// What objects and clusters cost in memory
    Store,
    /// One write, seen by all clusters
    Update,
    /// Ten thousand clusters behind one endpoint
    SharedScope,
    /// Clusters leave and join all the time
    Churn,
    /// A fifth of the clusters fail
    Isolation,
    /// One cluster with a hundred times the events
    Fairness,
    /// Operations of the queue
    Queue,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum BackendKind {
    Real,
    Sim,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

/// Runs what the command line says. `heap` tells the bytes that are allocated, where that is counted.
///
/// # Errors
///
/// When something can't be measured.
pub fn main(heap: fn() -> Option<usize>) -> Result<()> {
    let cli = Cli::parse();
    match cli.task {
        Some(Hidden::Subject(args)) => subject::run(args, heap),
        Some(Hidden::Sim(args)) => simulator::run(args),
        Some(Hidden::Alone(args)) => alone::run(args, heap),
        None => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(measure(cli.args)),
    }
}

async fn measure(args: Args) -> Result<()> {
    let subjects = if args.subjects.is_empty() {
        Subject::ALL.to_vec()
    } else {
        args.subjects
    };
    let options = Options {
        runs: args.runs.max(1),
        subjects,
        clusters: args.clusters,
        objects: args.objects,
        sim: args.backend == BackendKind::Sim,
        kubeconfig: args.kubeconfig,
        seconds: args.seconds,
        idle: Duration::from_secs(args.idle),
    };
    let mut told = |row: &Row| match args.format {
        Format::Json => println!("{}", serde_json::to_string(row).unwrap_or_default()),
        Format::Text => println!("{row:?}"),
    };
    let mut session = Session {
        options,
        programs: Programs::find(args.go)?,
        told: &mut told,
    };
    for suite in args.suites {
        match suite {
            Suite::Fleet => suite::fleet::run(&mut session).await?,
            Suite::Store => suite::store::run(&mut session).await?,
            Suite::Update => suite::update::run(&mut session).await?,
            Suite::SharedScope => suite::shared_scope::run(&mut session).await?,
            Suite::Churn => suite::churn::run(&mut session).await?,
            Suite::Isolation => suite::isolation::run(&mut session).await?,
            Suite::Fairness => suite::fairness::run(&mut session).await?,
            Suite::Queue => suite::queue::run(&mut session).await?,
        };
    }
    Ok(())
}

/// How the process ends. Errors are printed here, since what `main` returns would be shown with a backtrace.
pub fn ended(result: Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
