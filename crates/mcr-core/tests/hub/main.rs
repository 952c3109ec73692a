//! The kit for providers of a hub: its decisions.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod computed;
mod config_maps;
mod inventory;
mod secrets;
