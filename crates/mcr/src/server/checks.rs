//! The health checks of the program.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use mcr_core::{BoxError, reason};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

/// How long one check may take.
const CHECK_WITHIN: Duration = Duration::from_secs(5);
/// For how long the result of a check answers further probes, whoever sends them.
const KEPT: Duration = Duration::from_secs(1);

type Run = Box<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A named check. One call runs at a time.
pub(super) struct Check {
    name: String,
    run: Run,
    last: Mutex<Option<(Instant, Option<String>)>>,
    failing: AtomicBool,
}

/// A check that fails, and why.
pub(super) struct Failed<'a> {
    pub(super) name: &'a str,
    pub(super) error: String,
}

impl Check {
    pub(super) fn new<Fut>(name: String, check: impl Fn() -> Fut + Send + Sync + 'static) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            name,
            run: Box::new(move || check().boxed()),
            last: Mutex::default(),
            failing: AtomicBool::new(false),
        }
    }

    async fn failure(&self) -> Option<Failed<'_>> {
        let mut last = self.last.lock().await;
        let error = match &*last {
            Some((at, error)) if at.elapsed() < KEPT => error.clone(),
            _ => {
                let error = self.error().await;
                *last = Some((Instant::now(), error.clone()));
                error
            }
        };
        let error = error?;
        Some(Failed {
            name: &self.name,
            error,
        })
    }

    async fn error(&self) -> Option<String> {
        let run = AssertUnwindSafe(async { (self.run)().await }).catch_unwind();
        let error = match timeout(CHECK_WITHIN, run).await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(reason(&error.to_string())),
            Ok(Err(_)) => Some("the check panicked".to_owned()),
            Err(_) => Some(format!("no answer within {} s", CHECK_WITHIN.as_secs())),
        };
        let failed_before = self.failing.swap(error.is_some(), Ordering::Relaxed);
        match &error {
            Some(error) if !failed_before => tracing::warn!(check = self.name, error, "a health check fails"),
            None if failed_before => tracing::info!(check = self.name, "a health check succeeds again"),
            _ => {}
        }
        error
    }
}

/// Runs checks beside each other, and returns those that fail.
pub(super) async fn failures(checks: &[Check]) -> Vec<Failed<'_>> {
    let all = join_all(checks.iter().map(Check::failure)).await;
    all.into_iter().flatten().collect()
}
