//! Controllers: turn changes in the selected clusters into requests, and run a reconciler for each request.

mod build;
mod built;
mod engine;
mod follow;
mod member;
pub(crate) mod run;
mod status;

pub use self::build::{Controller, OwnsOptions, PrimaryKind, WatchOptions};
pub use self::built::BuiltController;
pub use self::engine::counters::ControllerCounts;
pub use self::engine::enqueue::{ClusterEnqueue, Enqueue};
#[cfg(feature = "metrics")]
pub(crate) use self::engine::histogram::HistogramRead;
pub use self::engine::running::RunningRequest;
pub use self::member::failing::FailingRequest;
pub use self::member::gate::{GateStatus, GatingWatch, WaitingKind};
pub use self::status::{ControllerClusterStatus, ControllerHandle, ControllerStatus, QueueStatus};
