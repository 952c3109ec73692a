//! Named stages with their times, so that a slow or failing stage is visible at a glance.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// How a stage ended.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// How a stage that has not failed has ended.
pub(crate) enum Done {
    /// The stage has run and found nothing.
    Passed,
    /// The stage could not run, for a reason that the change has not caused. The table shows the reason.
    Skipped(String),
}

/// The stages that have run so far.
pub(crate) struct Stages {
    started: Instant,
    all: Vec<(String, Duration, Outcome)>,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            all: Vec::new(),
        }
    }
}

/// A task of xtask that runs in parallel to the stages, in its own process. Dropping it ends the process.
pub(crate) struct Beside {
    name: &'static str,
    child: Child,
    started: Instant,
    output: PathBuf,
}

impl Beside {
    /// Starts `cargo xtask` with these arguments. Its output goes to a file, which [`wait`](Self::wait) prints.
    pub(crate) fn start(name: &'static str, args: &[&str]) -> Result<Self> {
        let output = workspace::target()?.join(format!("xtask-{}.log", name.replace(' ', "-")));
        let file = File::create(&output).with_context(|| output.display().to_string())?;
        let child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting `cargo xtask {}`", args.join(" ")))?;
        eprintln!("\n== {name}: beside what follows, {}", output.display());
        Ok(Self {
            name,
            child,
            started: Instant::now(),
            output,
        })
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        let ended = self.child.wait().context("waiting")?;
        eprint!("{}", std::fs::read_to_string(&self.output)?);
        Ok(ended)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The process has ended already, unless the caller has given up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stages {
    /// Runs a stage. Later stages run even after a failure, so that one run shows all findings.
    pub(crate) fn run(&mut self, name: &str, stage: impl FnOnce() -> Result<Done>) {
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = match stage() {
            Ok(Done::Passed) => Outcome::Passed,
            Ok(Done::Skipped(why)) => {
                eprintln!("SKIPPED {name}: {why}");
                Outcome::Skipped(why)
            }
            Err(error) => {
                eprintln!("FAILED {name}: {error:#}");
                Outcome::Failed(format!("{error:#}"))
            }
        };
        self.all.push((name.to_owned(), started.elapsed(), outcome));
    }

    /// Waits for a task that runs in parallel, and adds it to the stages. Its time is measured from its start until it
    /// has ended and the caller has waited for it.
    pub(crate) fn wait(&mut self, beside: Result<Beside>) {
        let started = beside
            .as_ref()
            .map_or_else(|_| Instant::now(), |beside| beside.started);
        let name = beside
            .as_ref()
            .map_or("a stage beside others", |beside| beside.name);
        self.run(name, || match beside?.wait()? {
            ended if ended.success() => Ok(Done::Passed),
            ended => bail!("{ended}, see above"),
        });
        if let Some((_, time, _)) = self.all.last_mut() {
            *time = started.elapsed();
        }
    }

    /// Prints the table of stages. Fails if any stage failed.
    pub(crate) fn finish(self) -> Result<()> {
        let width = self.all.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        eprintln!();
        let mut failed = Vec::new();
        for (name, time, outcome) in &self.all {
            let text = match outcome {
                Outcome::Passed => "ok".to_owned(),
                Outcome::Skipped(why) => format!("SKIPPED {}", why.lines().next().unwrap_or_default()),
                Outcome::Failed(why) => {
                    failed.push(name.as_str());
                    format!("FAILED {}", why.lines().next().unwrap_or_default())
                }
            };
            eprintln!("{name:width$}  {:>7.1} s  {text}", time.as_secs_f64());
        }
        eprintln!(
            "{:width$}  {:>7.1} s",
            "total",
            self.started.elapsed().as_secs_f64()
        );
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}
