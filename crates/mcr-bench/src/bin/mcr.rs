//! The subject `mcr` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mcr_bench::subject::{self, mcr};

fn main() -> ExitCode {
    subject::main(&[("mcr", |args, tally| Box::pin(mcr::run(args, tally)))])
}
