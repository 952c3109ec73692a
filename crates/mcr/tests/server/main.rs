//! The HTTP server: its responses, its limits, and its start and end.

mod checks;
mod guard;
mod harness;
mod http;
mod report;
#[path = "../support/series.rs"]
mod series;
#[path = "../support/mod.rs"]
mod support;
mod tls;
