//! Controllers and managers over API servers in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod deselected;
mod engine;
mod failing;
mod gating;
mod left_watch;
mod manager;
mod mapping;
mod runs;
#[cfg(unix)]
mod signals;
mod silence;
mod uniform;
mod upstream;
