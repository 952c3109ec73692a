//! The subjects `mcr` and `mcr-packed` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr::core::StoreFormat;
use mcr_bench::{
    cli,
    subject::{self, SubjectArgs},
};

/// mcr as its users have it
#[derive(Parser)]
enum Cli {
    /// Manager, file provider and controller
    Mcr(SubjectArgs),
    /// The same with packed stores
    McrPacked(SubjectArgs),
}

fn main() -> ExitCode {
    let (args, store) = match Cli::parse() {
        Cli::Mcr(args) => (args, StoreFormat::Plain),
        Cli::McrPacked(args) => (args, StoreFormat::packed()),
    };
    let program = |args, tally| subject::mcr::run(args, store, tally);
    cli::ended(subject::run(args, || None, program))
}
