//! The provider over an engine that is a shell script: what it does with the program, in peace and in trouble.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod detection;
mod events;
mod faults;
#[path = "../support/mod.rs"]
mod support;
