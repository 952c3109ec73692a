//! The control plane: reacts to what is written, as kcp's controllers do.

mod binding;
mod claims;
mod condition;
mod export;
mod logical_cluster;
mod migrate;
mod reconcile;
mod schedule;
mod slice;
mod timer;
mod unbind;
mod workspace_type;

pub use migrate::KcpMove;
pub(super) use schedule::{INITIALIZING, PHASE, logical_cluster, namespace};
pub(super) use timer::run as run_timer;
