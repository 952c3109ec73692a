//! The subject `floor` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::{self, SubjectArgs, floor},
};

/// What can't be saved
#[derive(Parser)]
enum Cli {
    /// A TLS session, a LIST and a WATCH for each context
    Floor(SubjectArgs),
}

fn main() -> ExitCode {
    let Cli::Floor(args) = Cli::parse();
    cli::ended(subject::run(args, || None, floor::run))
}
