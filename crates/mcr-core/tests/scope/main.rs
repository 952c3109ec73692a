//! Many clusters behind one endpoint.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod harness;
mod joins;
mod members;
mod moves;
mod namespaces;
mod panics;
mod real;
mod schedule;
mod too_large;
mod wildcard;
mod withheld;
mod witness;
mod workspaces;
