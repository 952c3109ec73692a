//! The subjects: programs that do the same job, each in a process of its own.
//!
//! The job: every ConfigMap of every context of a kubeconfig, or every object of the kinds it was started with, passes the
//! reconciler once, and from then on whenever it changes.
//! [`message`] has their messages on stdout and the questions on stdin.
//!
//! No code here names all subjects, or the linker would put all of them into each program.

pub mod floor;
pub mod kcp;
pub mod kube_rs;
pub mod mcr;
pub mod message;
pub mod sync;
pub mod sync_by_hand;
mod tally;
pub mod work;

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::Result;
pub(crate) use tally::send;
pub use tally::{Heap, Tally};

use crate::kind::Kind;

/// What a subject written in Rust is started with, after its name.
#[derive(clap::Args, Clone, Debug)]
pub struct SubjectArgs {
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
    /// How many worker threads the runtime has, if not one for each core
    #[arg(long)]
    pub threads: Option<NonZeroUsize>,
    /// Which kinds it watches
    #[arg(long, value_enum, value_delimiter = ',', default_value = "configmaps")]
    pub kinds: Vec<Kind>,
    /// The round of suite `work`: only objects of its namespace are watched, and those written in this round are applied
    #[arg(long)]
    pub round: Option<u64>,
}

/// Runs a subject until it is killed. `heap` tells the bytes that are allocated, where that is counted.
///
/// # Errors
///
/// When it can't start.
pub fn run<F>(args: SubjectArgs, heap: Heap, subject: impl FnOnce(SubjectArgs, Tally) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    // Only if `RUST_LOG` is set, because logging costs time.
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    let tally = Tally::new(args.expect);
    tally.answer_stdin(heap);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        runtime.worker_threads(threads.get());
    }
    runtime.enable_all().build()?.block_on(subject(args, tally))
}
