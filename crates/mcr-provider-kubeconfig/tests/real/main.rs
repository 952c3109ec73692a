//! A hub with Secrets and the clusters they lead to, all of them real API servers. The animals are those of
//! upstream's tests, and tests are named after its cases. At the hub the provider has the rights that the README names, and no
//! others.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod broken;
mod harness;
mod hub;
mod multi;
mod rotation;
#[path = "../support/mod.rs"]
mod support;
mod upstream;
