//! The traps that a fleet falls into: what kube-rs's own watcher and client do wrong when there are many
//! clusters, and what API servers and what stands in front of them do to a client. One test for each.
//!
//! The servers are scripted, so no control plane is needed.

// Clippy's leave to unwrap in tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod budgets;
#[path = "../common/mod.rs"]
mod common;
mod dead;
mod harness;
mod hub;
mod identity;
mod late_heads;
mod leaving;
mod limits;
mod lists;
mod namespaces;
mod pages;
mod panics;
mod reads;
mod ready;
mod relists;
mod secrets;
mod server;
mod sharing;
mod surroundings;
mod unreadable;
mod watches;
