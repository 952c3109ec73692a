//! What the suites of this crate share: how a test fails, and the runtime of a test.

use std::{fmt, future::Future, time::Duration};

/// Fails the test of a subject.
#[track_caller]
pub(crate) fn fail(message: impl fmt::Display) -> ! {
    panic!("{message}")
}

/// Runs one test in its own tokio runtime.
pub(crate) fn on_runtime(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(check);
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
        Err(error) => fail(format!("no tokio runtime: {error}")),
    }
}
