//! The command as a user runs it: the program, its output and exit code, against API servers.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cluster_api;
mod cluster_inventory;
mod clusters;
mod command_line;
mod doctor;
mod gardener;
mod harness;
mod hostile;
mod kcp;
mod secret;
