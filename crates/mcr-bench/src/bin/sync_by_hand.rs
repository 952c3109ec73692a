//! The subject `kube-rs-by-hand` of suite `sync` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::{
        sync::{self, SyncArgs},
        sync_by_hand,
    },
};

/// A sync by hand on kube-rs
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: SyncArgs,
}

fn main() -> ExitCode {
    cli::ended(sync::run(Cli::parse().args, sync_by_hand::run))
}
