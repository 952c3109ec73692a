//! The command line.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    alone::{
        self, AloneArgs, Case,
        steps::{self, StepArgs},
    },
    driver::{Programs, Subject},
    figures::{self, Stored},
    plan::{self, Step, Suite},
    proc,
    report::{self, Machine},
    row::Row,
    run::{Options, Session},
    simulator::{self, SimArgs},
    suite,
};

/// Measures mcr beside kube-rs and Go's controller-runtime, each in a process of its own.
///
///   cargo xtask bench --write                             all suites, in 45 minutes; writes docs/benchmarks.md
///   cargo xtask bench fleet --runs 3 --subjects mcr,kube-rs-tuned --clusters 500 --objects 102 --format json
///   cargo xtask bench fleet --kubeconfig FILE             on clusters of yours
///   cargo xtask bench --check                             fails where instructions or bytes an object have grown
///
/// With --write the programs are built as they would be deployed, with fat LTO, which takes a quarter of an hour on two cores.
/// Without it they are built with the profile `release`, and rows are for a first look: figures differ by some percent.
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
    /// What to measure [default: all suites, in less than 45 minutes]
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// How often each is measured [default: 5; if all suites are measured, as often as fits]
    #[arg(long)]
    runs: Option<usize>,
    /// Stop after so many minutes: what does not fit is left out [default: 45 for all suites, none otherwise]
    #[arg(long)]
    minutes: Option<u64>,
    /// Which subjects, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// How many clusters, instead of the suite's number
    #[arg(long)]
    clusters: Option<usize>,
    /// How many objects in each cluster, instead of the suite's number
    #[arg(long)]
    objects: Option<usize>,
    /// Measure `fleet`, `kinds` and `work` on a real API server or on simulated ones
    #[arg(long, value_enum, default_value = "real")]
    backend: BackendKind,
    /// Measure `fleet` on the clusters of this file
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Seconds between the sync and the reading of memory; `fleet` measures idle CPU in the second half of them, if that is at least
    /// half a minute [default: 6; `kinds` and `large` 30; `capacity` 10; `fleet` 120, in the first run; `work`, which begins after them, 25]
    #[arg(long)]
    idle: Option<u64>,
    /// How many threads the subjects of `fleet` and `update` work with [default: one for each core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// How many seconds `churn` takes [default: 120], the events of `capacity` [default: 20], and the outage of `wan`, which has none
    /// with 0 [default: 15]
    #[arg(long)]
    seconds: Option<usize>,
    /// How to print rows
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Put what was measured into docs/benchmarks.md, and build the programs for it with fat LTO; with --check, store the figures
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

/// Runs the command line.
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
        Some(Hidden::Step(args)) => steps::perform(&args),
        None if cli.args.check => runtime()?.block_on(check(cli.args)),
        None => runtime()?.block_on(measure(cli.args)),
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

async fn measure(args: Args) -> Result<()> {
    let subjects = if args.subjects.is_empty() {
        Subject::ALL.to_vec()
    } else {
        args.subjects
    };
    let options = Options {
        runs: args.runs.unwrap_or(5).max(1),
        subjects,
        clusters: args.clusters,
        objects: args.objects,
        sim: args.backend == BackendKind::Sim,
        kubeconfig: args.kubeconfig,
        threads: args.threads,
        seconds: args.seconds,
        idle: args.idle.map(Duration::from_secs),
    };
    let threaded = [Suite::Fleet, Suite::Update];
    if options.threads.is_some()
        && (args.suites.is_empty() || !args.suites.iter().all(|suite| threaded.contains(suite)))
    {
        bail!("--threads is for `fleet` and `update`: name one of them");
    }
    // Each watch needs an open file, here in the simulator and in the subjects.
    proc::raise_open_files();
    let is_whole = args.suites.is_empty();
    // Asked now: an error after an hour would be late.
    let root = args.write.then(root).transpose()?;
    let steps = match args.suites.as_slice() {
        [] => plan::everything(&options, args.runs),
        suites => suites.iter().map(|suite| alone_step(*suite, &options)).collect(),
    };
    let minutes = args.minutes.or(is_whole.then_some(45));
    let limit = minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let mut on_row = |row: &Row| match args.format {
        Format::Json => println!("{}", serde_json::to_string(row).unwrap_or_default()),
        Format::Text => println!("{row}"),
    };
    let mut session = Session {
        options,
        programs: Programs::find(args.go)?,
        on_row: &mut on_row,
    };
    let begun = Instant::now();
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        eprintln!("{}", plan::progress(&steps, at, begun.elapsed(), limit));
        session.options = step.options.clone();
        match in_time(
            step,
            limit.map(|limit| limit.saturating_sub(begun.elapsed())),
            &mut session,
        )
        .await
        {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                let failure = format!("{}: {error:#}", step.name());
                eprintln!("FAILED {failure}");
                failures.push(failure);
                rows.push(step.without_rows(&format!("{error:#}")));
            }
        }
        // After each: what was measured is kept, whatever becomes of the next.
        if let Some(root) = &root {
            // The page of the whole call has no rows of others, but as long as it is not complete, those of others stay.
            let keep = !is_whole || at + 1 < steps.len();
            let verdicts = report::write(root, rows.clone(), keep, &Machine::observe(root))?;
            let missed = verdicts.iter().filter(|verdict| verdict.met() == Some(false));
            eprintln!(
                "docs/benchmarks.md is written; targets missed so far: {}",
                missed.count()
            );
        }
    }
    if !failures.is_empty() {
        bail!(
            "not all was measured; the rows of the others are kept:\n  {}",
            failures.join("\n  ")
        );
    }
    Ok(())
}

/// A suite that was named.
fn alone_step(suite: Suite, options: &Options) -> Step {
    Step {
        suite,
        options: options.clone(),
        takes: None,
    }
}

/// Runs a step, if it ends before the time is up.
async fn in_time(step: &Step, left: Option<Duration>, session: &mut Session<'_>) -> Result<Vec<Row>> {
    let Some(left) = left else {
        return suite::run(step.suite, session).await;
    };
    if step.takes.is_some_and(|takes| takes > left) {
        bail!("left out: no time was left for it");
    }
    let ended = tokio::time::timeout(left, suite::run(step.suite, session)).await;
    ended.unwrap_or_else(|_| Err(anyhow!("stopped: the time was up before it had ended")))
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
    let mut on_row = |_: &Row| {};
    let options = Options {
        runs: 1,
        ..Options::default()
    };
    let session = Session {
        options,
        programs,
        on_row: &mut on_row,
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
        assert!(help.contains("shared-scope") && !help.contains("--go"), "{help}");
    }

    #[tokio::test]
    async fn a_step_that_would_not_end_in_time_is_not_begun() {
        let mut session = Session {
            options: Options::default(),
            programs: Programs::find(None).unwrap(),
            on_row: &mut |_| {},
        };
        let options = Options {
            runs: 1,
            ..Options::default()
        };
        let left_out = |takes| Step {
            takes: Some(Duration::from_secs(takes)),
            ..alone_step(Suite::Fairness, &options)
        };
        let left = Some(Duration::from_secs(60));
        let error = in_time(&left_out(61), left, &mut session).await.unwrap_err();
        assert!(error.to_string().contains("no time was left"), "{error}");
        // No subject is measured, and that is no error.
        assert_eq!(in_time(&left_out(60), left, &mut session).await.unwrap(), []);
    }
}
