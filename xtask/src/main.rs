//! Tasks of the workspace: `cargo xtask <task>`.
//!
//! Each task is in its own file. This file only parses the command line.
#![forbid(unsafe_code)]

mod assets;
mod bench;
mod ci;
mod demo;
mod e2e;
mod engine;
mod interrupt;
mod lint;
mod node_image;
mod planted;
mod process;
mod stage;
mod test;
mod tool;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the mcr workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Download or build the control-plane binaries; the last line on stdout is their folder
    Assets(assets::Args),
    /// Run every test of the workspace, doctests included, against real API servers
    Test(test::Args),
    /// Check formatting, rules for crates and modules, clippy, rustdoc, packages, licences and advisories
    Lint(lint::Args),
    /// Plant bugs on purpose and check that the tests catch each
    Planted(planted::Args),
    /// Watch one controller over several clusters that come, change and go, on real or simulated API servers; with
    /// --kcp, a database service for kcp workspaces
    Demo(demo::Args),
    /// Start API servers and keep them until Ctrl-C; prints the `export KUBECONFIG=…` for them
    Clusters(demo::Clusters),
    /// Build a control-plane-only node image for kind without an image registry, and kind itself; prints variables for
    /// tests
    NodeImage(node_image::Args),
    /// Run the suites that need real kind clusters, on clusters of their own, and the suite on the controllers of
    /// Cluster API
    E2e(e2e::Args),
    /// Measure mcr beside kube-rs and Go; with --write, write docs/benchmarks.md
    Bench(bench::Args),
    /// Run everything that a change must pass, and print the time of each stage
    Ci(ci::Args),
}

fn main() -> ExitCode {
    if let Some(ended) = planted::as_rustc() {
        return ended;
    }
    let result = match Cli::parse().task {
        Task::Assets(args) => assets::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Lint(args) => lint::run(&args),
        Task::Planted(args) => planted::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Clusters(args) => demo::clusters(&args),
        Task::NodeImage(args) => node_image::run(&args),
        Task::E2e(args) => e2e::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Ci(args) => ci::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Printed here, because an error that `main` returns would be printed with a backtrace, which does not help
        // with a missing compiler or a failed lint.
        Err(error) => {
            eprintln!("error: {error:#}");
            if interrupt::received() {
                ExitCode::from(interrupt::EXIT_CODE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
