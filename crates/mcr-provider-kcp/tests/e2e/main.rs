//! An operator for the workspaces of an APIExport, whose service runs in a real kind cluster. `cargo xtask e2e` runs it.
//!
//! kcp is the double of `mcr-testkit` with two shards, or a real one if `MCR_KCP_KUBECONFIG` names a kubeconfig of its admin.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod api;
mod kcp;
mod operator;
mod service;
mod sync;

use std::{fmt::Display, time::Duration};

use tokio::time::{Instant, sleep};

/// The longest that a test waits for anything. kind has half a minute on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Asks until there is an answer.
async fn until<T>(what: impl Display, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
