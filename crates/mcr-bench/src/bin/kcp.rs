//! The subject of suite `kcp` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::kcp::{self, KcpArgs},
};

/// mcr with the workspaces of an APIExport
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: KcpArgs,
}

fn main() -> ExitCode {
    cli::ended(kcp::run(Cli::parse().args))
}
