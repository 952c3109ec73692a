//! The mapping against real API servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod differential;
mod harness;
mod hostile;
mod limits;
mod requests;
mod verbs;
mod world;
