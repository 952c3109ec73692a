//! Permits for a limited number of operations at once.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A permit that is released early by an operation that only waits.
///
/// The limit keeps work from piling up (memory for lists, CPU for handshakes). Waiting for a dead or slow cluster is no
/// work: if it kept its permit, a few dead clusters would keep all others out.
pub struct Permit(Option<OwnedSemaphorePermit>);

impl Permit {
    /// Waits for a permit.
    pub async fn acquire(permits: &Arc<Semaphore>) -> Self {
        // Nothing closes the semaphores. If one were closed, to go on without a limit is better than to stand still.
        Self(permits.clone().acquire_owned().await.ok())
    }

    /// Runs `work` to its end, and releases the permit if that takes longer than `limit`.
    pub async fn hold_at_most<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if self.0.is_some() {
            if let Ok(done) = timeout(limit, &mut work).await {
                return done;
            }
            self.0 = None;
        }
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_only_waits_gives_the_place_back() {
        let permits = Arc::new(Semaphore::new(1));
        let holder = permits.clone();
        tokio::spawn(async move {
            let mut permit = Permit::acquire(&holder).await;
            permit
                .hold_at_most(Duration::from_secs(2), std::future::pending::<()>())
                .await;
        });
        tokio::task::yield_now().await;
        assert_eq!(permits.available_permits(), 0);
        let waited = tokio::time::Instant::now();
        let _permit = Permit::acquire(&permits).await;
        assert_eq!(waited.elapsed().as_secs(), 2);
    }
}
