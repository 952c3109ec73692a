//! Measurements of mcr alone, without a server. Each case runs in a process of its own that prints its figures.

pub mod canned;
mod core_share;
mod discovery;
mod double;
mod fleets;
pub mod queue;
mod scope;
pub mod steps;
pub mod store;
mod workspaces;

pub use fleets::Runs;
pub(crate) use scope::place;

use anyhow::Result;

pub use crate::subject::{Heap, message::Figures};
use crate::subject::{allocated, message::Message, send};

/// Which one.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// From the bytes of a watch to the reconciler
    CoreShare,
    /// What objects cost in memory, and reading them
    Store,
    /// Clusters behind one endpoint
    Scope,
    /// Clusters that a provider finds in a hub
    Discovery,
    /// Workspaces of a double of kcp
    Workspaces,
    /// Operations of the queue
    Queue,
}

/// What a case is started with.
#[derive(clap::Args, Clone, Debug)]
pub struct AloneArgs {
    /// Which one
    #[arg(value_enum)]
    pub case: Case,
    /// How much of it
    #[arg(long, default_value_t = 10_000)]
    pub size: usize,
    /// The API server, for those that need one
    #[arg(long)]
    pub kubeconfig: Option<std::path::PathBuf>,
}

/// Runs a case and prints its figures.
///
/// # Errors
///
/// When it can't be measured.
pub fn run(args: AloneArgs, heap: Heap) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = match args.case {
        Case::CoreShare => runtime.block_on(core_share::measure(args.size))?,
        Case::Store => runtime.block_on(store::measure(args.size, heap))?,
        Case::Scope => runtime.block_on(scope::measure(args.kubeconfig, args.size, heap))?,
        Case::Discovery => runtime.block_on(discovery::measure(args.kubeconfig, heap))?,
        Case::Workspaces => runtime.block_on(workspaces::measure(args.size, heap))?,
        Case::Queue => queue::measure()?,
    };
    send(&Message::Figures { figures });
    // Background tasks hold nothing that needs a cleanup.
    std::process::exit(0);
}
