//! Controllers over real API servers, found through kubeconfig files.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

mod changing;
mod harness;
mod sick;
