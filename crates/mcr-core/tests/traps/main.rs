//! The traps that a fleet falls into: what kube-rs's own client does wrong when there are many clusters, and what API servers and
//! what stands in front of them do to a fleet. One test for each. The traps of lists and watches are in mcr-watch.
//!
//! The servers are scripted, so no control plane is needed.

// Clippy's leave to unwrap in tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod checks;
#[path = "../common/mod.rs"]
mod common;
mod dead;
mod harness;
mod identity;
mod leaving;
mod namespaces;
mod panics;
mod reads;
mod ready;
mod secrets;
mod surroundings;
