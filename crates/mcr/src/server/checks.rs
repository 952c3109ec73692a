//! The health checks of the program.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use mcr_core::{BoxError, reason};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};

/// How long one check may take.
const CHECK_WITHIN: Duration = Duration::from_secs(5);
/// For how long the result of a check answers further probes, whoever sends them.
const KEPT: Duration = Duration::from_secs(1);

type Run = Box<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A named check. It runs in [`follow`](Self::follow), so that a caller who goes away does not end it: callers that are less patient than the
/// check is fast would begin it again and again, and nobody would learn its result.
pub(super) struct Check {
    name: String,
    run: Run,
    wanted: Notify,
    last: watch::Sender<Option<Done>>,
}

/// The result of a check that has run: its error, if it failed.
struct Done {
    at: Instant,
    error: Option<String>,
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
            wanted: Notify::new(),
            last: watch::Sender::new(None),
        }
    }

    /// Runs the check when somebody wants its result, until the future is dropped.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut fails = false;
        loop {
            self.wanted.notified().await;
            if self.is_fresh() {
                continue;
            }
            let error = self.error().await;
            match &error {
                Some(error) if !fails => tracing::warn!(check = self.name, error, "a health check fails"),
                None if fails => tracing::info!(check = self.name, "a health check succeeds again"),
                _ => {}
            }
            fails = error.is_some();
            let at = Instant::now();
            self.last.send_replace(Some(Done { at, error }));
        }
    }

    fn is_fresh(&self) -> bool {
        self.last
            .borrow()
            .as_ref()
            .is_some_and(|done| done.at.elapsed() < KEPT)
    }

    async fn failure(&self) -> Option<Failed<'_>> {
        // What is published from here on counts as a change, also before it is waited for.
        let mut last = self.last.subscribe();
        if !self.is_fresh() {
            self.wanted.notify_one();
            last.changed().await.ok()?;
        }
        let error = last.borrow().as_ref()?.error.clone()?;
        Some(Failed {
            name: &self.name,
            error,
        })
    }

    async fn error(&self) -> Option<String> {
        // The text of the error is code of users too.
        let run = async { (self.run)().await.map_err(|error| reason(&error.to_string())) };
        match timeout(CHECK_WITHIN, AssertUnwindSafe(run).catch_unwind()).await {
            Ok(Ok(ended)) => ended.err(),
            Ok(Err(_)) => Some("the check panicked".to_owned()),
            Err(_) => Some(format!("no answer within {} s", CHECK_WITHIN.as_secs())),
        }
    }
}

/// Runs checks beside each other, and returns those that fail.
pub(super) async fn failures(checks: &[Arc<Check>]) -> Vec<Failed<'_>> {
    let all = join_all(checks.iter().map(|check| check.failure())).await;
    all.into_iter().flatten().collect()
}
