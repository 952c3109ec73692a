//! What a sync tells people, how it changes targets for their clusters, and the ends of sources and clusters, on simulated API servers.
#![allow(clippy::unwrap_used)]

#[path = "../world/mod.rs"]
mod world;

mod claims;
mod events;
mod mutations;
mod orphans;
