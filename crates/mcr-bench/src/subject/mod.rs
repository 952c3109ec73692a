//! What is measured: programs that do the same job, each run in a process of its own.
//!
//! The job: every ConfigMap of every context of a kubeconfig passes the reconciler once, and from then on whenever it changes.
//! What they say on stdout, and are asked on stdin, is in [`said`].

mod floor;
pub mod kube_rs;
pub mod mcr;
pub mod said;
mod tally;

use std::path::PathBuf;

use ::mcr::core::StoreFormat;
use anyhow::Result;
pub use tally::Tally;
pub(crate) use tally::say;

/// What a subject written in Rust is started with.
#[derive(clap::Args, Clone, Debug)]
pub struct SubjectArgs {
    /// Which one
    #[arg(value_enum)]
    pub which: Which,
    /// The file whose contexts are the clusters
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// How many objects there are in all clusters together
    #[arg(long)]
    pub expect: usize,
    /// How many reconciles run at once, if not the default number
    #[arg(long)]
    pub workers: Option<usize>,
    /// How long each reconcile takes, in microseconds
    #[arg(long, default_value_t = 0)]
    pub work: u64,
}

/// The subjects written in Rust.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// `Manager`, file provider and `Controller`
    Mcr,
    /// The same with packed stores
    McrPacked,
    /// A cloned kubeconfig, a client, a watcher and a reflector for each context
    KubeRs,
    /// The same with the kubeconfig and its CA parsed once and a client without layers that aren't needed
    KubeRsTuned,
    /// What can't be saved: a TLS session, a LIST and a WATCH for each context
    Floor,
}

/// Runs a subject until it is killed. `heap` tells the bytes that are allocated, where that is counted.
///
/// # Errors
///
/// When it can't start.
pub fn run(args: SubjectArgs, heap: fn() -> Option<usize>) -> Result<()> {
    // Only where it is asked for: what is logged costs time.
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    let tally = Tally::new(args.expect);
    tally.answer_stdin(heap);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            match args.which {
                Which::Mcr => mcr::run(args, StoreFormat::Plain, tally).await,
                Which::McrPacked => mcr::run(args, StoreFormat::packed(), tally).await,
                Which::KubeRs => kube_rs::naive(args.kubeconfig, tally).await,
                Which::Floor => floor::run(args.kubeconfig, tally).await,
                Which::KubeRsTuned => kube_rs::tuned(args.kubeconfig, tally).await,
            }
        })
}
