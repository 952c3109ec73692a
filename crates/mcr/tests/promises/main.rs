//! The promises of the architecture document that need a whole fleet, on simulated API servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fleet;
mod promise_1_isolation;
