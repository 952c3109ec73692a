//! Real kind clusters in a real engine, a manager and a controller over them. `cargo xtask e2e` runs it.
//!
//! The clusters are its own: they are stopped, deleted and removed behind kind's back. Where `MCR_ENGINE` is set, the engine is
//! also ended and started again.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod engines;
mod kind;
mod life;
mod world;

use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Nothing here may take longer; kind has half a minute on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// No test takes so long: what has this interval does not happen by itself.
const NEVER: Duration = Duration::from_secs(3600);

/// Writes past libtest, which hides what a passing test prints.
fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "e2e: {text}");
}

async fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = so() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
