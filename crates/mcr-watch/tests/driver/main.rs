//! The driver on its own: what API servers, and what stands in front of them, do to whoever lists and watches. One test for each
//! trap.
//!
//! The servers are scripted and in memory, and time is paused: hours pass in milliseconds.

// Clippy's leave to unwrap in tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod budgets;
mod faults;
mod gzip;
mod harness;
mod hub;
mod late_heads;
mod limits;
mod lists;
mod log;
mod pages;
mod relists;
mod sharing;
mod unreadable;
mod watches;
mod witness;
