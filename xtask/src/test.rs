//! `cargo xtask test`: every test of the workspace, against real API servers.

use std::process::Command;

use anyhow::Result;

use crate::stage::{Done, Stages};
use crate::tool::{self, Tool};
use crate::{assets, workspace};

/// Runs each test in its own process. `.config/nextest.toml` sets how many run at once.
const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    // The newest version that builds with the Rust version of this workspace.
    version: "0.9.128",
    features: &["--no-default-features"],
    takes: "4 minutes",
};

/// The tests that share API servers, which is only possible within one process. The library of the package has the
/// same name.
const SHARED: &str = "package(examples) & binary(examples) & kind(test)";

/// The tests that install aws-lc-rs if a variable is set: in processes of their own.
const TLS: &str = "package(mcr-client) & test(/^tests::(certificates|tls)::/)";

/// Arguments of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Also run the tests marked `#[ignore]`: the long ones
    #[arg(long)]
    pub(crate) full: bool,
    /// Passed on to the test binaries, after `--`
    #[arg(last = true)]
    pub(crate) extra: Vec<String>,
}

/// Runs the stages and prints their times.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut stages = Stages::default();
    add(&mut stages, args);
    stages.finish()
}

/// Runs those of all test programs that a filter selects.
fn nextest(filter: &str) -> Result<Command> {
    let mut command = Command::new(tool::installed(&NEXTEST)?);
    workspace::in_root(&mut command)
        .args([
            "nextest",
            "run",
            "--workspace",
            "--all-features",
            "--lib",
            "--bins",
            "--tests",
        ])
        .args(["-E", filter]);
    Ok(command)
}

/// Adds the test stages.
pub(crate) fn add(stages: &mut Stages, args: &Args) {
    let mut folder = None;
    stages.run("assets", || {
        folder = Some(assets::ensure(&assets::Args::default())?);
        Ok(Done::Passed)
    });
    let Some(folder) = folder else { return };

    // The tests run the examples as a user would. `cargo test --examples` would only build their test harnesses.
    stages.run("build examples", || {
        workspace::check(workspace::cargo().args(["build", "--workspace", "--all-features", "--examples"]))?;
        Ok(Done::Passed)
    });

    stages.run("tests", || {
        let mut command = nextest(&format!("not ({SHARED})"))?;
        command.env("KUBEBUILDER_ASSETS", &folder);
        if args.full {
            command.args(["--run-ignored", "all"]);
        }
        if !args.extra.is_empty() {
            // With a filter, some programs may have no tests.
            command.args(["--no-tests", "pass", "--"]).args(&args.extra);
        }
        workspace::check(&mut command)?;
        Ok(Done::Passed)
    });

    stages.run("tests of the examples", || {
        let mut command = workspace::cargo();
        command
            .args(["test", "--workspace", "--all-features", "--test", "examples"])
            .env("KUBEBUILDER_ASSETS", &folder);
        if args.full || !args.extra.is_empty() {
            command.arg("--");
        }
        if args.full {
            command.arg("--include-ignored");
        }
        workspace::check(command.args(&args.extra))?;
        Ok(Done::Passed)
    });

    // All features are on in the stages before, which means ring. Here aws-lc-rs, and neither. Only `mcr-access` has code that depends on
    // these features, so it alone is compiled again; the TLS of `mcr-client` is tested as the stages before have compiled it.
    stages.run("cryptography", || {
        let access = [
            "test",
            "--no-default-features",
            "--package=mcr-access",
            "--test=crypto",
        ];
        workspace::check(
            workspace::cargo()
                .args(access)
                .args(["--features=aws-lc-rs", "--lib"]),
        )?;
        workspace::check(workspace::cargo().args(access))?;
        workspace::check(nextest(TLS)?.env("MCR_TEST_AWS_LC_RS", "1"))?;
        if args.full {
            let neither = [
                "test",
                "--no-default-features",
                "--package=mcr",
                "--test=no_crypto",
            ];
            workspace::check(workspace::cargo().args(neither))?;
        }
        Ok(Done::Passed)
    });

    // A separate stage, because `--include-ignored` would also compile examples that are marked `ignore`.
    stages.run("doctests", || {
        workspace::check(
            workspace::cargo()
                .args(["test", "--workspace", "--all-features", "--doc"])
                .env("KUBEBUILDER_ASSETS", &folder),
        )?;
        Ok(Done::Passed)
    });
}
