//! Leader election of managers: in one process over a simulated cluster, and of two processes over a real API server.
//!
//! The second part needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod journal;
mod processes;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
