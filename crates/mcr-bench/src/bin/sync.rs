//! The subject `mcr-sync` of suite `sync` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mcr_bench::subject::{self, sync};

fn main() -> ExitCode {
    subject::main(&[("mcr-sync", |args, tally| Box::pin(sync::run(args, tally)))])
}
