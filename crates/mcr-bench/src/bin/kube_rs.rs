//! The subjects `kube-rs` and `kube-rs-tuned` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use mcr_bench::subject::{self, kube_rs};

fn main() -> ExitCode {
    subject::main(&[
        ("kube-rs", |args, tally| Box::pin(kube_rs::naive(args, tally))),
        ("kube-rs-tuned", |args, tally| {
            Box::pin(kube_rs::tuned(args, tally))
        }),
    ])
}
