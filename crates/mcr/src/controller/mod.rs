//! Controllers: which changes, in which clusters, lead to which requests, and who deals with them.

mod builder;
mod built;
mod engine;
mod enqueue;
mod finish;
mod follow;
mod gate;
mod judge;
mod measure;
mod member;
mod options;
mod plan;
mod primary;
mod run;
mod source;
mod status;

pub use builder::Controller;
pub use built::BuiltController;
pub use enqueue::{ClusterEnqueue, Enqueue};
pub use gate::{GateStatus, WaitingKind};
#[cfg(feature = "metrics")]
pub(crate) use measure::HistogramRead;
pub use measure::RunningRequest;
pub use options::{OwnsOptions, WatchOptions};
pub use status::{
    ControllerClusterStatus, ControllerCounts, ControllerHandle, ControllerStatus, QueueStatus,
};
