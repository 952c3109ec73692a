//! The suite on the controllers of Cluster API: a test target named `capi`. It needs no container engine and no kind
//! clusters, because the controllers run as plain processes with real API servers.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::case::{self, Case, Outcome};
use super::report::Report;
use crate::assets::{self, Capi};
use crate::process::{self, Rules};
use crate::stage::{Done, Stages};
use crate::workspace::{self, TestProgram};

/// The suite's name.
pub(super) const NAME: &str = "cluster-api";

const PACKAGE: &str = "mcr-provider-cluster-api";
const TARGET: &str = "capi";

/// The first build takes minutes on two cores.
const BUILD: Rules = Rules::within(Duration::from_secs(3600));
/// The whole suite takes a minute and a half on two cores.
const SUITE: Rules = Rules::within(Duration::from_secs(1800));
/// All tests run at once, because they mostly wait and share the management cluster.
const AT_ONCE: &str = "32";

/// Adds the stages.
pub(super) fn add(stages: &mut Stages, report: &mut Report) {
    let mut found = None;
    stages.run("cluster-api assets", || match assets::ensure_capi()? {
        (assets, Capi::Ready(capi)) => {
            found = Some((assets, capi));
            Ok(Done::Passed)
        }
        (_, Capi::Missing(why)) => Ok(Done::Skipped(why)),
    });
    let Some((assets, capi)) = found else { return };

    let mut built = None;
    stages.run("cluster-api build", || {
        built = Some(build()?);
        Ok(Done::Passed)
    });
    let Some(program) = built else { return };

    stages.run("e2e cluster-api", || {
        let mut command = Command::new(&program.path);
        command
            .current_dir(&program.package)
            .env("CARGO_MANIFEST_DIR", &program.package)
            .env("KUBEBUILDER_ASSETS", &assets)
            .env("MCR_CAPI", &capi);
        run(&mut command, report)
    });
}

/// Builds the suite. Dependencies have the same features as in all other builds of the workspace.
fn build() -> Result<TestProgram> {
    let mut command = workspace::cargo();
    command.args([
        "test",
        "--workspace",
        "--all-features",
        "--no-run",
        "--test",
        TARGET,
    ]);
    command.arg("--message-format=json-render-diagnostics");
    let shown = workspace::show(&command);
    eprintln!("+ {shown}");
    let mut program = None;
    let ended = process::listen_to_stdout(&mut command, BUILD, |line| {
        let built =
            TestProgram::read(line).filter(|built| built.target == TARGET && built.folder() == PACKAGE);
        program = built.or(program.take());
    })?;
    if !ended.is_success() {
        bail!("`{shown}`: {}", ended.why());
    }
    program.with_context(|| format!("cargo built no {TARGET} of {PACKAGE}"))
}

/// Runs all cases in one process, so that they share the management cluster, which takes seconds to start.
fn run(command: &mut Command, report: &mut Report) -> Result<Done> {
    command.args(["--test-threads", AT_ONCE]);
    let started = Instant::now();
    let (mut failed, mut count) = (Vec::new(), 0);
    // libtest prints a line when a case ends. At the end it prints the output of the failed cases.
    let ended = process::listen_to_stdout(command, SUITE, |line| {
        let Some((name, passed)) = case::parse_result_line(line) else {
            return;
        };
        count += 1;
        eprintln!("e2e: {NAME}: {name}");
        if passed {
            report.add(case(name, Outcome::Passed, started.elapsed(), ""));
        } else {
            eprintln!("e2e: FAILED after {:.1} s", started.elapsed().as_secs_f64());
            failed.push((name, started.elapsed()));
        }
    })?;
    for (name, took) in &failed {
        let failed = Outcome::Failed("failed".to_owned());
        report.add(case(name.clone(), failed, *took, &ended.output));
    }
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
        bail!("{} of {count} cases: {}", names.len(), names.join(", "));
    }
    if !ended.is_success() {
        bail!(
            "{} after {count} cases:\n{}",
            ended.why(),
            ended.output.trim_end()
        );
    }
    if count == 0 {
        bail!("it has no case");
    }
    Ok(Done::Passed)
}

/// A case that has ended this long after the start of the suite.
fn case(name: String, outcome: Outcome, took: Duration, output: &str) -> Case {
    Case {
        suite: NAME.to_owned(),
        output: case::failed_output(output, &name),
        name,
        outcome,
        took,
        left_out: Vec::new(),
    }
}
