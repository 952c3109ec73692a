//! Named stages with a time each, so that a slow or failing one is seen at a glance.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a stage ended.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// What a stage that did not fail says.
pub(crate) enum Done {
    /// It ran and found nothing.
    Passed,
    /// It could not run, for a reason that is no fault of the change. Always shown.
    Skipped(String),
}

/// The stages run so far.
#[derive(Default)]
pub(crate) struct Stages {
    all: Vec<(String, Duration, Outcome)>,
}

impl Stages {
    /// Runs a stage. A failure is kept and the next stage still runs: one round shows everything.
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

    /// Prints the table; an error if any stage failed.
    pub(crate) fn finish(self) -> Result<()> {
        let width = self.all.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        eprintln!();
        let mut total = Duration::ZERO;
        let mut failed = Vec::new();
        for (name, time, outcome) in &self.all {
            total += *time;
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
        eprintln!("{:width$}  {:>7.1} s", "total", total.as_secs_f64());
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}
