//! `cargo xtask planted`: tests the test suite. Each of the bugs that are planted on purpose must make a test fail.
//!
//! All bugs are in one patch, `planted/bugs.patch`. It is applied to a copy of the workspace, whose test programs are
//! built once. The variable `MCR_PLANTED` then activates one bug. The copy shares the target folder, so dependencies
//! are not built again.

mod bugs;
mod copy;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::stage::{Done, Stages};
use crate::workspace::TestProgram;
use crate::{assets, workspace};
use bugs::{BUGS, LIB, Planted};

/// The variable that marks a call of this program as a wrapper of rustc. Cargo distinguishes builds with such a
/// wrapper from other builds, and so the crates of the copy from those of the workspace.
const AS_RUSTC: &str = "MCR_XTASK_AS_RUSTC";

/// Arguments of `cargo xtask planted`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Only this bug, by its name in the table
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Runs the stage and prints its time.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut stages = Stages::default();
    add(&mut stages, args);
    stages.finish()
}

/// Adds the stage.
pub(crate) fn add(stages: &mut Stages, args: &Args) {
    stages.run("planted bugs", || {
        let folder = assets::ensure(&assets::Args::default())?;
        try_all(args, &folder).map(|()| Done::Passed)
    });
}

/// Checks that the patch applies, and contains the bugs in the table.
pub(crate) fn check() -> Result<()> {
    copy::check()
}

/// Runs rustc with the arguments from cargo. `None` if cargo has not called this program as a wrapper.
pub(crate) fn as_rustc() -> Option<ExitCode> {
    std::env::var_os(AS_RUSTC)?;
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let rustc = (!args.is_empty()).then(|| args.remove(0))?;
    Some(match Command::new(rustc).args(args).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn try_all(args: &Args, assets: &Path) -> Result<()> {
    copy::check()?;
    let chosen: Vec<&Planted> = BUGS
        .iter()
        .filter(|bug| args.only.as_ref().is_none_or(|only| only == bug.name))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "no such bug; the names are in xtask/src/planted/bugs.rs"
    );
    let started = Instant::now();
    let copy = copy::make()?;
    let programs = build(&chosen, &copy)?;
    eprintln!("built in {:.1} s", started.elapsed().as_secs_f64());

    let bench = trial::Bench::new(programs, assets, copy)?;
    let mut wrong = Vec::new();
    // Without a bug, the same tests must pass. Otherwise their failure with a bug would prove nothing.
    let tests: BTreeSet<_> = chosen.iter().map(|bug| bug.test).collect();
    for (test, result) in bench.all(&tests.iter().map(|test| (*test, None)).collect::<Vec<_>>()) {
        if let Err(why) = result {
            eprintln!("{}::{} without a bug: {why}", test.program, test.name);
            wrong.push(format!("{} fails without a bug", test.name));
        }
    }
    let trials: Vec<_> = chosen.iter().map(|bug| (bug.test, Some(bug.name))).collect();
    let results = bench.all(&trials);
    let width = BUGS.iter().map(|bug| bug.name.len()).max().unwrap_or(0);
    eprintln!("\n{:width$}  promise  caught after  by", "bug");
    for (bug, (test, result)) in chosen.iter().zip(results) {
        let caught = match result {
            Err(trial::Failed {
                after,
                kind: trial::Kind::Test,
            }) => format!("{:10.1} s", after.as_secs_f64()),
            Err(failed) => {
                wrong.push(format!("{}: {failed}", bug.name));
                format!("{failed}")
            }
            Ok(()) => {
                wrong.push(format!("{} is not caught", bug.name));
                "NOT CAUGHT".to_owned()
            }
        };
        eprintln!(
            "{:width$}  {:>7}  {caught:>12}  {}/{}::{}",
            bug.name, bug.promise, test.package, test.program, test.name
        );
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("{}", wrong.join("; "))
    }
}

/// Builds the test programs. Returns their paths, by package and name.
fn build(chosen: &[&Planted], copy: &Path) -> Result<BTreeMap<(String, String), PathBuf>> {
    let names: BTreeSet<&str> = chosen.iter().map(|bug| bug.test.program).collect();
    let mut command = workspace::cargo();
    // Builds the whole workspace, so that dependencies have the same features as in all other builds.
    command.args(["test", "--workspace", "--all-features", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    for name in &names {
        match *name {
            LIB => command.arg("--lib"),
            name => command.args(["--test", name]),
        };
    }
    command
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", workspace::target()?)
        .env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?)
        .env(AS_RUSTC, "1")
        .stderr(Stdio::inherit());
    eprintln!(
        "+ cargo test --no-run with the programs {} # in {}",
        names.into_iter().collect::<Vec<_>>().join(", "),
        copy.display()
    );
    let output = command.output().context("starting cargo")?;
    ensure!(
        output.status.success(),
        "the tests do not build with the bugs in {}",
        copy.display()
    );
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(program) = TestProgram::read(line) {
            let package = program.folder();
            let is_lib = program.target == package.replace('-', "_");
            let name = if is_lib { LIB.to_owned() } else { program.target };
            programs.insert((package, name), program.path);
        }
    }
    Ok(programs)
}
