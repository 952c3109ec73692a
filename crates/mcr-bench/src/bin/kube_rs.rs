//! The subjects `kube-rs` and `kube-rs-tuned` of `cargo xtask bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mcr_bench::{
    cli,
    subject::{self, SubjectArgs, kube_rs},
};

/// What is written with kube-rs alone
#[derive(Parser)]
enum Cli {
    /// A cloned kubeconfig, a client, a watcher and a reflector for each context
    KubeRs(SubjectArgs),
    /// The same with the kubeconfig and its CA parsed once and a client without layers that aren't needed
    KubeRsTuned(SubjectArgs),
}

fn main() -> ExitCode {
    cli::ended(match Cli::parse() {
        Cli::KubeRs(args) => subject::run(args, || None, kube_rs::naive),
        Cli::KubeRsTuned(args) => subject::run(args, || None, kube_rs::tuned),
    })
}
