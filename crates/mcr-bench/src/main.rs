//! `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mcr_bench::cli::ended(mcr_bench::cli::main())
}
