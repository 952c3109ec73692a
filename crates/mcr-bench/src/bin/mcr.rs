//! The subject `mcr` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::{self, SubjectArgs, mcr},
};

/// mcr as its users have it
#[derive(Parser)]
enum Cli {
    /// Manager, file provider and controller
    Mcr(SubjectArgs),
}

fn main() -> ExitCode {
    let Cli::Mcr(args) = Cli::parse();
    cli::ended(subject::run(args, || None, mcr::run))
}
