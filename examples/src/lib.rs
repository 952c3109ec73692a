//! What the examples have in common: flags, the choice of a provider, output, logs and how they end.
//!
//! Nothing of it is needed to use mcr. It is here so that each example shows its own subject only.
#![forbid(unsafe_code)]

#[cfg(feature = "demo")]
mod backend;
mod clusters;
#[cfg(any(test, doctest))]
mod docs;
#[cfg(feature = "demo")]
mod export;
mod fleet;
mod log;
mod output;
mod stop;
mod yaml;

#[cfg(feature = "demo")]
pub use backend::{Backend, Choice};
pub use clusters::{ClusterArgs, FileArgs, ProviderKind, SecretArgs, access_of};
#[cfg(feature = "demo")]
pub use export::export_kubeconfig;
pub use fleet::FleetArgs;
pub use log::{DEFAULT_FILTER, log, log_with};
pub use output::{Format, ObjectLine, Output, OutputArgs, printable};
pub use stop::stop_at_signal;
pub use yaml::documents;

use std::process::ExitCode;

/// Ends an example: an error is one line on stderr, without a backtrace, and exit code 1.
pub fn exit(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
