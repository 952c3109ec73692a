//! `cargo xtask ci`: everything a change must pass.

use anyhow::Result;

use crate::stage::Stages;
use crate::{lint, planted, test};

/// Arguments of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run the tests marked `#[ignore]`: the long ones
    #[arg(long)]
    full: bool,
}

/// Runs all stages, also after a failure, and prints a time for each.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut stages = Stages::default();
    lint::add(&mut stages);
    test::add(
        &mut stages,
        &test::Args {
            full: args.full,
            ..test::Args::default()
        },
    );
    planted::add(&mut stages, &planted::Args::default());
    stages.finish()
}
