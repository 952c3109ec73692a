//! `cargo xtask demo`: one controller, several real clusters that come and go.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{assets, workspace};

/// Arguments of `cargo xtask demo`: all of them are the demo's own.
#[derive(clap::Args, Default)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Passed on to the demo: --once, --format json, --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

const DEMO: [&str; 6] = ["-p", "examples", "--example", "demo", "--features", "demo"];

/// Becomes the demo, so that its exit code and what Ctrl-C does are its own.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut run = workspace::cargo();
    run.args(["run", "--quiet"]).args(DEMO).arg("--").args(&args.args);
    if !args.args.iter().any(|arg| arg == "--help" || arg == "-h") {
        run.env("KUBEBUILDER_ASSETS", assets::ensure(&assets::Args::default())?);
    }
    // By itself, for the first time takes minutes and cargo's progress should be seen.
    workspace::check(workspace::cargo().arg("build").args(DEMO))?;
    become_it(&mut run).context("starting cargo")
}

#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    // Returns only if it failed.
    Err(command.exec())
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1));
}
