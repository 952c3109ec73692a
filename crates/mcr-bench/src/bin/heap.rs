//! The programs whose allocated bytes `cargo xtask bench` counts: the subject `mcr`, and mcr alone.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    alone::{self, AloneArgs},
    subject::{self, SubjectArgs, mcr},
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// mcr with an allocator that counts
#[derive(Parser)]
enum Cli {
    /// Manager, file provider and controller
    Mcr(SubjectArgs),
    /// What is measured of mcr alone
    Alone(AloneArgs),
}

fn main() -> ExitCode {
    let heap = || Some(HEAP.current_usage());
    subject::ended(match Cli::parse() {
        Cli::Mcr(args) => subject::run(args, heap, |args, tally| Box::pin(mcr::run(args, tally))),
        Cli::Alone(args) => alone::run(args, heap),
    })
}
