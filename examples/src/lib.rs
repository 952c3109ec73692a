//! What the examples have in common: the choice of a provider, output, and how they end.
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
mod output;
#[cfg(feature = "demo")]
mod steps;
mod stop;
mod yaml;

#[cfg(feature = "demo")]
pub use backend::{Backend, Choice};
#[cfg(feature = "file")]
pub use clusters::file;
pub use clusters::{ClusterArgs, ProviderKind, SecretArgs};
#[cfg(feature = "demo")]
pub use export::export_kubeconfig;
pub use fleet::{FleetArgs, selector};
pub use output::{Format, ObjectLine, Output, OutputArgs, printable};
#[cfg(feature = "demo")]
pub use steps::{Done, Step, Summary, duration, in_millis, print};
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
