//! The command line.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    alone::{
        self, AloneArgs, Case,
        steps::{self, StepArgs},
    },
    driver::{Programs, Subject},
    figures::{self, Stored},
    report::{self, Machine},
    row::Row,
    simulator::{self, SimArgs},
    suite::{self, Options, Session},
};

/// Measures mcr beside kube-rs and Go's controller-runtime, each in a process of its own.
///
///   cargo xtask bench                                     all suites; writes docs/benchmarks.md
///   cargo xtask bench fleet --runs 3 --subjects mcr,kube-rs-tuned --clusters 500 --objects 102 --format json
///   cargo xtask bench fleet --kubeconfig FILE             on clusters of yours
///   cargo xtask bench --check                             fails where instructions or bytes an object have grown
#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    verbatim_doc_comment,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    task: Option<Hidden>,
    #[command(flatten)]
    args: Args,
}

#[derive(Subcommand)]
enum Hidden {
    /// Simulated API servers
    #[command(hide = true)]
    Sim(SimArgs),
    /// What is measured of mcr alone
    #[command(hide = true)]
    Alone(AloneArgs),
    /// What instructions are counted of
    #[command(hide = true)]
    Step(StepArgs),
}

#[derive(clap::Args)]
struct Args {
    /// What to measure; all suites without it, and docs/benchmarks.md is written
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Which subjects, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// How many clusters, instead of the suite's number
    #[arg(long)]
    clusters: Option<usize>,
    /// How many objects in each cluster, instead of the suite's number
    #[arg(long)]
    objects: Option<usize>,
    /// Measure `fleet` on a real API server or on simulated ones
    #[arg(long, value_enum, default_value = "real")]
    backend: BackendKind,
    /// Measure `fleet` on the clusters of this file
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Seconds between the sync and the look at memory [default: 6; on simulated clusters 43, and with many longer]
    #[arg(long)]
    idle: Option<u64>,
    /// How many threads the subjects of `fleet` and `update` work with [default: one for each core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// How many seconds `churn` takes [default: 120]
    #[arg(long)]
    seconds: Option<usize>,
    /// A program that `kcp` measures beside mcr; the documentation of `mcr_bench::subject::kcp` says how it is called and
    /// answers. May be given several times
    #[arg(long, value_name = "PATH")]
    subject: Vec<PathBuf>,
    /// How to print rows
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Put what these suites measured into docs/benchmarks.md; with --check, store the figures
    #[arg(long)]
    write: bool,
    /// Count instructions and bytes of objects, and fail where they are over a tenth more than what is stored
    #[arg(long, conflicts_with_all = ["suites", "threads"])]
    check: bool,
    /// Where the stored figures are, if not in their place
    #[arg(long, hide = true, requires = "check")]
    figures: Option<PathBuf>,
    /// Figures to hold to the stored ones, in place of measuring them
    #[arg(long, hide = true, requires = "check")]
    measured: Option<PathBuf>,
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
    /// A thousand clusters that a provider finds in a hub
    Discovery,
    /// Ten thousand workspaces of a double of kcp
    Workspaces,
    /// Clusters leave and join all the time
    Churn,
    /// A fifth of the clusters fail
    Isolation,
    /// One cluster with a hundred times the events
    Fairness,
    /// Operations of the queue
    Queue,
    /// The workspaces of a real kcp, which MCR_KCP_KUBECONFIG names; not one of all suites
    Kcp,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum BackendKind {
    /// A real API server, once for each context
    Real,
    /// Simulated ones in a process of their own
    Sim,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people
    Text,
    /// One object a line
    Json,
}

/// Runs what the command line says.
///
/// # Errors
///
/// When something can't be measured, and when `--check` finds growth.
pub fn main() -> Result<()> {
    let cli = Cli::parse();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match cli.task {
        Some(Hidden::Sim(args)) => simulator::run(args),
        Some(Hidden::Alone(args)) => alone::run(args, || None),
        Some(Hidden::Step(args)) => steps::run(&args),
        None if cli.args.check => runtime()?.block_on(check(cli.args)),
        None => runtime()?.block_on(measure(cli.args)),
    }
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

/// The root of the workspace, where `cargo xtask bench` starts this.
fn root() -> Result<PathBuf> {
    let root = std::env::current_dir()?;
    if !root.join("crates/mcr-bench").is_dir() {
        bail!(
            "{} is not the root of the workspace: run `cargo xtask bench`",
            root.display()
        );
    }
    Ok(root)
}

/// The measurements if no suite is named: all suites, and `fleet` at several sizes for the plots.
fn everything(options: &Options) -> Vec<(Suite, Options)> {
    let fleet = |clusters, objects, sim, subjects: &[Subject]| {
        // The floor is always measured, because every figure is compared with it.
        let asked = |subject: &Subject| *subject == Subject::Floor || options.subjects.contains(subject);
        let kept = subjects.iter().copied().filter(asked);
        let options = Options {
            clusters: Some(clusters),
            objects: Some(objects),
            sim,
            subjects: kept.collect(),
            ..options.clone()
        };
        (Suite::Fleet, options)
    };
    let all_and_floor = [&Subject::ALL[..], &[Subject::Floor]].concat();
    let side_by_side = [Subject::Mcr, Subject::KubeRsTuned, Subject::GoConcurrent];
    let mut all = vec![
        fleet(100, 102, false, &Subject::ALL),
        fleet(250, 102, false, &Subject::ALL),
        fleet(500, 102, false, &all_and_floor),
        fleet(500, 20, true, &side_by_side),
        fleet(5_000, 20, true, &side_by_side[..2]),
        fleet(10_000, 20, true, &side_by_side[..1]),
    ];
    let others = Suite::value_variants()
        .iter()
        .filter(|suite| !matches!(suite, Suite::Fleet | Suite::Kcp));
    all.extend(others.map(|suite| {
        let mut options = options.clone();
        if *suite == Suite::Update {
            options.subjects.push(Subject::Floor);
        }
        (*suite, options)
    }));
    all
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
        threads: args.threads,
        seconds: args.seconds,
        brought: args.subject,
        idle: args.idle.map(Duration::from_secs),
    };
    let threaded = [Suite::Fleet, Suite::Update];
    if options.threads.is_some()
        && (args.suites.is_empty() || !args.suites.iter().all(|suite| threaded.contains(suite)))
    {
        bail!("--threads is for `fleet` and `update`: name one of them");
    }
    if args.write && args.suites.contains(&Suite::Kcp) {
        bail!("docs/benchmarks.md has no suite kcp: its rows belong into docs/design/kcp.md");
    }
    let write = args.write || args.suites.is_empty();
    // Asked now: to be told after an hour would be late.
    let root = write.then(root).transpose()?;
    let plan = match args.suites.as_slice() {
        [] => everything(&options),
        suites => suites.iter().map(|suite| (*suite, options.clone())).collect(),
    };
    let mut told = |row: &Row| match args.format {
        Format::Json => println!("{}", serde_json::to_string(row).unwrap_or_default()),
        Format::Text => println!("{row}"),
    };
    let mut session = Session {
        options,
        programs: Programs::find(args.go)?,
        told: &mut told,
    };
    let mut rows = Vec::new();
    for (suite, options) in plan {
        session.options = options;
        rows.extend(match suite {
            Suite::Fleet => suite::fleet::run(&mut session).await?,
            Suite::Store => suite::store::run(&mut session).await?,
            Suite::Update => suite::update::run(&mut session).await?,
            Suite::SharedScope => suite::shared_scope::run(&mut session).await?,
            Suite::Discovery => suite::discovery::run(&mut session).await?,
            Suite::Workspaces => suite::workspaces::run(&mut session).await?,
            Suite::Churn => suite::churn::run(&mut session).await?,
            Suite::Isolation => suite::isolation::run(&mut session).await?,
            Suite::Fairness => suite::fairness::run(&mut session).await?,
            Suite::Queue => suite::queue::run(&mut session).await?,
            Suite::Kcp => suite::kcp::run(&mut session).await?,
        });
        // After each: what was measured is kept, whatever becomes of the next.
        if let Some(root) = &root {
            let machine = Machine::look(root);
            let verdicts = report::write(root, rows.clone(), &machine)?;
            let missed = verdicts.iter().filter(|verdict| verdict.met() == Some(false));
            eprintln!(
                "docs/benchmarks.md is written; targets missed so far: {}",
                missed.count()
            );
        }
    }
    Ok(())
}

async fn check(args: Args) -> Result<()> {
    let path: &Path = &match &args.figures {
        Some(path) => path.clone(),
        None => root()?.join("crates/mcr-bench/figures.json"),
    };
    let stored = figures::read(path)?;
    let now = match &args.measured {
        Some(path) => figures::read(path)?,
        None => measure_figures().await?,
    };
    print!("{}", figures::table(&stored, &now));
    if args.write {
        let mut now = now;
        if now.instructions.is_empty() {
            now.instructions = stored.instructions;
        }
        return figures::write(path, &now);
    }
    let grown = figures::grown(&stored, &now);
    if !grown.is_empty() {
        bail!(
            "more than a tenth above what is stored:\n  {}\nwhere that is meant, `cargo xtask bench --check --write` stores the new figures",
            grown.join("\n  ")
        );
    }
    Ok(())
}

async fn measure_figures() -> Result<Stored> {
    let programs = Programs::find(None)?;
    let mut now = Stored::default();
    if figures::valgrind_is_there() {
        now.instructions = figures::instructions(&programs)?;
    } else {
        eprintln!("SKIPPED instruction counts: valgrind is not installed");
    }
    let mut told = |_: &Row| {};
    let options = Options {
        runs: 1,
        ..Options::default()
    };
    let session = Session {
        options,
        programs,
        told: &mut told,
    };
    let measured = session
        .alone(Case::Store, true, &["--size=4000".to_owned()])
        .await?;
    let bytes = measured
        .iter()
        .filter_map(|(name, value)| Some((name.strip_suffix(".bytes")?.to_owned(), value.round())));
    now.bytes = bytes.collect();
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_shows_nothing_hidden() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(
            help.contains("shared-scope") && !help.contains("--expect"),
            "{help}"
        );
    }

    #[test]
    fn everything_is_every_suite_with_the_sizes_that_targets_are_about() {
        let options = Options {
            subjects: vec![Subject::Mcr, Subject::GoSerial],
            ..Options::default()
        };
        let plan = everything(&options);
        for suite in Suite::value_variants() {
            // Nobody has a kcp without having started one.
            let planned = plan.iter().any(|(planned, _)| planned == suite);
            assert_eq!(planned, *suite != Suite::Kcp, "{suite:?}");
        }
        let sizes: Vec<_> = plan
            .iter()
            .filter(|(suite, _)| *suite == Suite::Fleet)
            .map(|(_, options)| {
                (
                    options.clusters.unwrap_or_default(),
                    options.sim,
                    options.subjects.len(),
                )
            })
            .collect();
        assert_eq!(
            sizes,
            [
                (100, false, 2),
                (250, false, 2),
                (500, false, 3),
                (500, true, 1),
                (5_000, true, 1),
                (10_000, true, 1),
            ]
        );
    }

    #[test]
    fn the_stored_figures_are_of_all_that_is_counted() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("figures.json");
        let stored = figures::read(&path).unwrap();
        let steps: Vec<&str> = stored.instructions.keys().map(String::as_str).collect();
        let mut wanted = steps::Step::ALL.map(steps::Step::name);
        wanted.sort_unstable();
        assert_eq!(steps, wanted);
        assert_eq!(stored.bytes.len(), 4);
    }
}
