//! Bad input of a sync: it is reported in words and tried again as fits, and others are not affected.
//!
//! API servers are simulated, and time is paused: minutes of waiting cost nothing.
#![allow(clippy::unwrap_used)]

#[path = "../world/mod.rs"]
mod world;

mod anew;
mod fields;
mod fleet;
mod functions;
mod isolation;
mod kinds;
mod labels;
mod mirror;
mod names;
mod orphans;
mod paths;
mod places;
mod reconciles;
mod refusals;
mod secrets;
mod status;
