//! Exec credential plugins: programs that print a credential, and services that answer with one.

mod config;
mod places;
mod plugin;
mod protocol;
mod run;
mod service;
mod shared;

pub use config::ApiVersion;
pub(crate) use config::DEFAULT_DEADLINE;
pub use plugin::ExecPlugin;
pub use protocol::output;
pub use service::{MAX_ANSWER, PluginService};
