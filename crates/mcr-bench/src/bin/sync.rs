//! The subject `mcr-sync` of suite `sync` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::sync::{self, SyncArgs},
};

/// A sync with mcr-sync
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SyncArgs,
}

fn main() -> ExitCode {
    cli::ended(sync::run(Cli::parse().args, sync::with_mcr))
}
