//! Controllers: which changes, in which clusters, lead to which requests, and who deals with them.

mod built;
mod builder;
mod dispatch;
mod engine;
mod enqueue;
mod finish;
mod follow;
mod gate;
mod member;
mod options;
mod plan;
mod source;
mod status;

pub use built::BuiltController;
pub use builder::Controller;
pub use enqueue::{ClusterEnqueue, Enqueue};
pub use gate::{GateStatus, WaitingKind};
pub use options::{OwnsOptions, WatchOptions};
pub use status::{ControllerClusterStatus, ControllerCounts, ControllerHandle, ControllerStatus};
