//! What is served over HTTP, when, and to whom not.

mod harness;
mod http;
mod report;
#[path = "../support/series.rs"]
mod series;
#[path = "../support/mod.rs"]
mod support;
