//! Exec credential plugins: programs that print a credential.

mod config;
mod places;
mod plugin;
mod protocol;
mod run;
mod shared;

pub use config::ApiVersion;
pub(crate) use config::DEFAULT_DEADLINE;
pub use plugin::ExecPlugin;
pub use protocol::output;
