//! What a sync reports to people, how it changes targets for their clusters, and the ends of sources and clusters.
#![allow(clippy::unwrap_used)]

#[path = "../world/mod.rs"]
mod world;

mod claims;
mod mutations;
mod orphans;
