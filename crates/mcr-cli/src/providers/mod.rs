//! The linked providers, their flags, and a fleet over the chosen ones.

mod builtin;
mod flags;
mod fleet;
mod kcp_api;
mod linked;
mod tap;

pub(crate) use builtin::builtin;
pub(crate) use flags::{ClusterFlags, ReadyWhen};
pub(crate) use fleet::{Running, start};
pub(crate) use kcp_api::KcpApi;
pub use linked::ProviderOptions;
pub(crate) use linked::{Kind, Linked, choose};
pub(crate) use tap::Tap;
