//! Credentials from programs: the exec credential plugins of kubeconfigs.

mod plan;
mod plugin;
mod protocol;
mod run;
mod shared;

pub use plan::ApiVersion;
pub(crate) use plan::DEADLINE;
pub use plugin::ExecPlugin;
pub use protocol::output;
