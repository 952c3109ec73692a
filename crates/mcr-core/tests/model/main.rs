//! The fleet against a model of itself: whatever providers say, whatever API servers do, and in whatever order,
//! the fleet ends as the model says, and nothing is left over.
//!
//! API servers are places in memory behind `kube::Client`, and time is tokio's paused clock, so a schedule of an
//! hour takes milliseconds. A schedule that fails is printed in its shortest form and kept in
//! `proptest-regressions`, whose schedules are run first the next time. `PROPTEST_CASES` asks for more of them.
//! (What a schedule does not fix is the jitter of the core's own pauses.)

// Clippy's leave to unwrap in tests does not reach the functions that tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::{prelude::ProptestConfig, test_runner::FileFailurePersistence};

mod announced;
mod credentials;
mod life;
#[path = "../common/paused.rs"]
mod paused;
mod promises;
mod providers;
mod stress;
#[path = "../../../mcr-watch/tests/driver/witness.rs"]
mod witness;
mod world;

/// How often schedules are tried, and where those that failed are kept.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(cases),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/model.txt"
        )))),
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}
