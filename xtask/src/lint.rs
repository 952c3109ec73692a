//! `cargo xtask lint`: the checks that do not run the code.

mod crates;
mod crypto;
mod deny;
mod modules;
mod packages;
mod semver;
mod sources;
mod words;

use anyhow::Result;

use crate::stage::{Done, Stages};
use crate::workspace;

/// Arguments of `cargo xtask lint`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the stages and prints the time of each.
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
    stages.run("cryptography", || crypto::check().map(|()| Done::Passed));
    stages.run("lengths of sources", || {
        sources::check_lengths(&sources::read()?).map(|()| Done::Passed)
    });
    stages.run("words of identifiers", || {
        words::check(&sources::read_all()?).map(|()| Done::Passed)
    });
    stages.run("circles of modules", || {
        modules::check(&sources::read()?).map(|()| Done::Passed)
    });
    stages.run("imports by way of the root", || {
        modules::check_imports(&sources::read()?).map(|()| Done::Passed)
    });
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
    stages.run("each crate alone", || {
        crates::check_alone().map(|()| Done::Passed)
    });
    stages.run("rustdoc", || {
        workspace::check(
            workspace::cargo()
                .args(["doc", "--no-deps", "--workspace", "--all-features"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )?;
        Ok(Done::Passed)
    });
    // Cargo packages offline, with the index that earlier stages have fetched.
    stages.run("packages", packages::check);
    stages.run("publish (dry run)", packages::publish_dry_run);
    stages.run("semver", semver::check);
    stages.run("bans licences sources", || deny::offline().map(|()| Done::Passed));
    stages.run("advisories", deny::advisories);
}
