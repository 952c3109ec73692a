//! Controllers: turn changes in the selected clusters into requests, and run a reconciler for each request.

mod builder;
mod built;
mod counters;
mod damping;
mod deferred;
mod engine;
mod enqueue;
mod failing;
mod finish;
mod follow;
mod gate;
mod gating;
mod histogram;
pub(crate) mod leading;
mod member;
mod options;
mod outcome;
mod plan;
mod primary;
mod run;
mod runs;
mod sink;
mod source;
mod status;

pub use builder::Controller;
pub use built::BuiltController;
pub use counters::ControllerCounts;
pub use enqueue::{ClusterEnqueue, Enqueue};
pub use failing::FailingRequest;
pub use gate::{GateStatus, WaitingKind};
pub use gating::GatingWatch;
#[cfg(feature = "metrics")]
pub(crate) use histogram::HistogramRead;
pub use options::{OwnsOptions, WatchOptions};
pub use primary::PrimaryKind;
pub use runs::RunningRequest;
pub use status::{ControllerClusterStatus, ControllerHandle, ControllerStatus, QueueStatus};
