//! Places among a bounded number of things under way.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A place that is given back early where only waiting is done.
///
/// The bound is there to keep work from piling up (memory for lists, CPU for handshakes), and waiting for a
/// dead or slow cluster is no work: if such waits kept their places, a few dead clusters would keep all
/// others out.
pub struct Permit(Option<OwnedSemaphorePermit>);

impl Permit {
    /// Waits for a permit.
    pub async fn take(slots: &Arc<Semaphore>) -> Self {
        // The semaphores are never closed; if one were, going on without a bound beats standing still.
        Self(slots.clone().acquire_owned().await.ok())
    }

    /// Takes a place anew if the one there was has been given back.
    pub async fn take_again(&mut self, slots: &Arc<Semaphore>) {
        if self.0.is_none() {
            *self = Self::take(slots).await;
        }
    }

    /// Does the work, keeping the place for at most `limit` of it.
    pub async fn hold<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> T {
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
        let slots = Arc::new(Semaphore::new(1));
        let holder = slots.clone();
        tokio::spawn(async move {
            let mut slot = Permit::take(&holder).await;
            slot.hold(Duration::from_secs(2), std::future::pending::<()>())
                .await;
        });
        tokio::task::yield_now().await;
        assert_eq!(slots.available_permits(), 0);
        let waited = tokio::time::Instant::now();
        let _slot = Permit::take(&slots).await;
        assert_eq!(waited.elapsed().as_secs(), 2);
    }
}
