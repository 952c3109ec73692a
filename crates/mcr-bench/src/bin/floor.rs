//! The subject `floor` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mcr_bench::subject::{self, floor};

fn main() -> ExitCode {
    subject::main(&[("floor", |args, tally| Box::pin(floor::run(args, tally)))])
}
