//! `cargo xtask planted`: is the suite any good? Bugs that are planted on purpose must each make a test fail.
//!
//! The bugs stand in the code behind `--cfg mcr_planted` (`mcr-core/src/planted.rs`). The test programs are built once
//! with it and then told by `MCR_PLANTED` which bug to have. The cfg reaches the crates of this workspace
//! only: cargo is told to call this program in rustc's place for them, so dependencies are not built again.

mod bugs;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::stage::{Done, Stages};
use crate::workspace::TestProgram;
use crate::{assets, workspace};
use bugs::{BUGS, Planted};

/// Says that this program is called in rustc's place.
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

/// What cargo asks of rustc, with the cfg added; none if nobody called this program in rustc's place.
pub(crate) fn as_rustc() -> Option<ExitCode> {
    std::env::var_os(AS_RUSTC)?;
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let rustc = (!args.is_empty()).then(|| args.remove(0))?;
    let ended = Command::new(rustc)
        .args(args)
        .args(["--cfg", "mcr_planted"])
        .status();
    Some(match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn try_all(args: &Args, assets: &std::path::Path) -> Result<()> {
    same_names()?;
    let chosen: Vec<&Planted> = BUGS
        .iter()
        .filter(|bug| args.only.as_ref().is_none_or(|only| only == bug.name))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "no such bug; the names are in xtask/src/planted/bugs.rs"
    );
    let started = Instant::now();
    let programs = build(&chosen)?;
    eprintln!("built in {:.1} s", started.elapsed().as_secs_f64());

    let bench = trial::Bench::new(programs, assets)?;
    let mut wrong = Vec::new();
    // Without a bug the same tests must pass, or their failing says nothing.
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

/// The table here and the bugs in the code must be the same.
fn same_names() -> Result<()> {
    let path = workspace::root().join("crates/mcr-core/src/planted.rs");
    let code = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let planted: BTreeSet<&str> = code
        .lines()
        .filter_map(|line| line.trim().strip_suffix("\",")?.split_once(" = \""))
        .map(|(_, name)| name)
        .collect();
    let listed: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
    let differ: Vec<_> = planted.symmetric_difference(&listed).collect();
    ensure!(
        differ.is_empty(),
        "only in one of xtask/src/planted/bugs.rs and mcr-core/src/planted.rs: {differ:?}"
    );
    Ok(())
}

/// Builds the test programs; returns where they are, by package and name.
fn build(chosen: &[&Planted]) -> Result<BTreeMap<(String, String), PathBuf>> {
    let names: BTreeSet<&str> = chosen.iter().map(|bug| bug.test.program).collect();
    let mut command = workspace::cargo();
    // The whole workspace, so that dependencies have the features that they have in all other builds.
    command.args(["test", "--workspace", "--all-features", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    names.iter().for_each(|name| {
        command.args(["--test", name]);
    });
    command
        .env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?)
        .env(AS_RUSTC, "1")
        .stderr(Stdio::inherit());
    eprintln!(
        "+ cargo test --no-run --test {} # with --cfg mcr_planted",
        names.into_iter().collect::<Vec<_>>().join(" --test ")
    );
    let output = command.output().context("starting cargo")?;
    ensure!(
        output.status.success(),
        "the tests do not build with --cfg mcr_planted"
    );
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(program) = TestProgram::read(line) {
            programs.insert((program.folder(), program.target), program.path);
        }
    }
    Ok(programs)
}
