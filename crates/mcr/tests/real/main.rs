//! Controllers over real API servers, found through kubeconfig files.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod changing;
mod harness;
mod sick;
