//! Runs the examples as a user would: as programs, on real API servers.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod clusters;
mod command_line;
mod configmaps;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "kubeconfig")]
mod kubeconfig;
#[cfg(feature = "namespace")]
mod namespace;
mod program;
mod registry;
mod sieve;
mod sync;
mod uniform;
