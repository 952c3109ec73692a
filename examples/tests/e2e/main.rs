//! Runs the examples as a user would, on real kind clusters: `cargo xtask e2e`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod cluster;
#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "the tests on API servers use more of it")]
mod common;
mod deploy;
mod image;
mod mongodb;
mod providers;
mod quickstart;
mod stories;

use common::program;
