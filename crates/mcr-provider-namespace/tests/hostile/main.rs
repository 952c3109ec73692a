//! Requests of a cluster that is a namespace, against a real API server.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod harness;
mod requests;
mod rounds;
