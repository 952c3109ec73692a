//! The subject `kube-rs-by-hand` of suite `sync` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mcr_bench::subject::{self, sync_by_hand};

fn main() -> ExitCode {
    subject::main(&[("kube-rs-by-hand", |args, tally| {
        Box::pin(sync_by_hand::run(args, tally))
    })])
}
