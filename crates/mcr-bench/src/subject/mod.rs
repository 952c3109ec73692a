//! The subjects: programs that do the same job, each in a process of its own.
//!
//! The job: every ConfigMap of every context of a kubeconfig, or every object of the kinds it was started with, passes the
//! reconciler once, and from then on whenever it changes.
//! [`message`] has their messages on stdout and the questions on stdin.
//!
//! No code here names all subjects, or the linker would put all of them into each program.

pub mod floor;
pub mod kube_rs;
pub mod mcr;
pub mod message;
pub mod sync;
pub mod sync_by_hand;
mod tally;
pub mod work;

use std::{num::NonZeroUsize, path::PathBuf, pin::Pin, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::runtime::{Builder, Runtime};

pub use tally::{Heap, Tally};
pub(crate) use tally::{allocated, send};

use crate::kind::Kind;

/// What a subject written in Rust is started with, after its name.
#[derive(clap::Args, Clone, Debug)]
pub struct SubjectArgs {
    /// The file whose contexts are the clusters
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// How many objects there are in all clusters together
    #[arg(long, default_value_t = 0)]
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
    /// Whether lists are compressed
    #[arg(long, value_enum, default_value = "off")]
    pub gzip: Gzip,
}

/// Whether lists are compressed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gzip {
    /// They are not
    Off,
    /// With gzip
    On,
    /// With gzip, and in Go they are LISTs in place of watches, which API servers before 1.37 don't compress
    Lists,
}

/// A subject: it runs until it fails.
pub type Start = fn(SubjectArgs, Tally) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// A subject with its arguments.
#[derive(clap::Parser)]
struct Program {
    /// Which subject of this program
    name: String,
    #[command(flatten)]
    args: SubjectArgs,
}

/// Runs a program of these subjects, until it is killed or its stdin ends.
pub fn main(subjects: &[(&str, Start)]) -> ExitCode {
    let Program { name, args } = Program::parse();
    let subject = subjects.iter().find(|(known, _)| *known == name);
    let subject = subject.with_context(|| format!("this program has no subject {name:?}"));
    ended(subject.and_then(|(_, start)| run(args, || None, *start)))
}

/// Runs a subject until it is killed or its stdin ends. `heap` returns the bytes that are allocated, where that is counted.
///
/// # Errors
///
/// When it can't start.
pub fn run(args: SubjectArgs, heap: Heap, start: Start) -> Result<()> {
    let tally = Tally::new(args.expect);
    tally.answer_stdin(heap);
    runtime(args.threads)?.block_on(start(args, tally))
}

/// A runtime with so many worker threads, or one for each core. It logs only if `RUST_LOG` is set, because logging costs time.
pub(crate) fn runtime(threads: Option<NonZeroUsize>) -> Result<Runtime> {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        log.with_writer(std::io::stderr).init();
    }
    let mut runtime = Builder::new_multi_thread();
    if let Some(threads) = threads {
        runtime.worker_threads(threads.get());
    }
    Ok(runtime.enable_all().build()?)
}

/// How a process ends. Errors are printed here, since what `main` returns would be shown with a backtrace.
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
