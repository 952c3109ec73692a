//! Bad input of a sync: it is told in words and tried again as fits, and others are not affected.
//!
//! API servers are simulated, and time is paused: minutes of waiting cost nothing.
#![allow(clippy::unwrap_used)]

mod anew;
mod fleet;
mod functions;
mod gate;
mod kinds;
mod names;
mod orphans;
mod paths;
mod places;
mod refusals;
mod rights;
mod world;
