//! Many clusters behind one endpoint.
//!
//! Needs the control-plane binaries (`cargo xtask assets`); `cargo xtask test` sets everything up.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod harness;
mod members;
mod moves;
mod namespaces;
mod panics;
#[path = "../common/paused.rs"]
mod paused;
mod real;
mod schedule;
mod too_large;
mod wildcard;
mod withheld;
mod witness;
mod workspaces;
