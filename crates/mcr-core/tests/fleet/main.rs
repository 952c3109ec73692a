//! The fleet on real API servers.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod gzip;
mod harness;
mod isolation;
mod life;
mod recovery;
mod restores;
