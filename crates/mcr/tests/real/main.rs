//! Controllers over real API servers.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod agents;
#[allow(dead_code, reason = "shared with the promises")]
#[path = "../promises/fleet.rs"]
mod fleet;
#[cfg(feature = "server")]
mod guarded;
mod sick;
