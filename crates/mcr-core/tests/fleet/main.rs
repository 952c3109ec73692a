//! The fleet on real API servers.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

mod changes;
mod harness;
mod isolation;
mod life;
mod recovery;
