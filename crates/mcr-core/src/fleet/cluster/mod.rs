//! The handle of one cluster, and its parts.

mod attachment;
mod handle;
mod info;
mod stores;

pub(crate) use attachment::{Attachment, ConnectionInfo, ScopePlacement};
pub use handle::Cluster;
