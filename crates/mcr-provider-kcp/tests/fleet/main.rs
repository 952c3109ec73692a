//! Workspaces of a double of kcp as a fleet.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bindings;
mod claims;
mod endpoints;
mod events;
mod garbage;
mod initializing;
mod input;
mod kinds;
mod life;
mod moves;
mod names;
mod paths;
mod real;
mod real_stages;
mod restart;
mod rights;
mod scale;
mod scripted;
mod stages;
mod two_exports;
mod upstream;
mod world;
mod writes;

/// Both kcps of the suite that holds the double to the facts.
#[allow(dead_code, reason = "that suite uses the rest")]
#[path = "../../../mcr-kcp-double/tests/kcp/world.rs"]
mod kcps;
