//! The promises of docs/design/promises.md that need a whole fleet, on simulated API servers and a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod fleet;
mod process;
mod promise_10_fair_share;
mod promise_15_hostile_bytes;
mod promise_1_isolation;
mod promise_1_real;
