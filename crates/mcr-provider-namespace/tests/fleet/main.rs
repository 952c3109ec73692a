//! Namespaces of real API servers as a fleet, with controllers over it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod harness;
mod life;
mod upstream;
