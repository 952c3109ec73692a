//! The linked providers, their flags, and a fleet over the chosen ones.

mod builtin;
mod flags;
mod fleet;
mod linked;
mod tap;

pub(crate) use builtin::builtin;
pub(crate) use flags::{ClusterFlags, ReadyWhen};
pub(crate) use fleet::{Running, start};
pub use linked::ProviderOptions;
pub(crate) use linked::{LinkedProvider, choose};
pub(crate) use tap::{NoDoctor, Tap};
