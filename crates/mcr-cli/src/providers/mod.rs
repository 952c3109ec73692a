//! Where clusters come from: the providers that are linked, their flags, and a fleet over those that are chosen.

mod builtin;
mod flags;
mod fleet;
mod linked;
mod tap;

pub(crate) use builtin::builtin;
pub(crate) use flags::ClusterFlags;
pub(crate) use fleet::{Running, start};
pub use linked::ProviderOptions;
pub(crate) use linked::{Kind, Linked, choose};
pub(crate) use tap::Tap;
