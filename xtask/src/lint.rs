//! `cargo xtask lint`: what can be said of a change without running it.

mod crates;
mod deny;
mod packages;
mod semver;

use anyhow::Result;

use crate::stage::{Done, Stages};
use crate::workspace;

/// Arguments of `cargo xtask lint`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the stages and prints their times.
pub(crate) fn run(_: &Args) -> Result<()> {
    let mut stages = Stages::default();
    add(&mut stages);
    stages.finish()
}

/// Adds the lint stages, the quick ones first.
pub(crate) fn add(stages: &mut Stages) {
    stages.run("fmt", || {
        workspace::check(workspace::cargo().args(["fmt", "--all", "--check"]))?;
        Ok(Done::Passed)
    });
    stages.run("crate rules", || crates::check().map(|()| Done::Passed));
    stages.run("planted bugs' patch", || {
        crate::planted::check().map(|()| Done::Passed)
    });
    stages.run("clippy", || {
        workspace::check(workspace::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]))?;
        Ok(Done::Passed)
    });
    stages.run("rustdoc", || {
        workspace::check(
            workspace::cargo()
                .args(["doc", "--no-deps", "--workspace", "--all-features"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )?;
        Ok(Done::Passed)
    });
    // After the stages that fetch what it needs to know.
    stages.run("packages", packages::check);
    stages.run("publish (dry run)", packages::publish_dry_run);
    stages.run("semver", semver::check);
    stages.run("bans licences sources", || deny::offline().map(|()| Done::Passed));
    stages.run("advisories", deny::advisories);
}
