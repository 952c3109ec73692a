//! A real kcp, and the subjects that serve an API to its workspaces.

mod subject;
mod world;

pub use subject::{Events, KcpSubject};
pub use world::{Consumer, World};
