//! A value whose changes can be waited for.
//!
//! A cluster has several of these, and most never have a waiter. tokio's `watch` channel is made for many receivers, and takes
//! about 300 bytes more.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value whose changes can be waited for.
#[derive(Debug, Default)]
pub struct Observable<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Observable<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// Calls `read` with the value, which is locked meanwhile: `read` must be quick.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.lock())
    }

    /// Changes the value and wakes all waiters.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        self.change_if(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and wakes all waiters if `change` returns true. Returns the result of `change`.
    pub fn change_if(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = change(&mut self.value.lock());
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Waits until `find` returns something for the value. Cancel safe.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async function stores its arguments twice in its future"
    )]
    pub fn wait<R>(&self, mut find: impl FnMut(&T) -> Option<R>) -> impl Future<Output = R>
    where
        T: Clone,
    {
        async move {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Registered before the value is read, so that no change in between is missed.
                changed.as_mut().enable();
                let found = {
                    // Called with a copy: `find` may be user code, and must not run under the lock.
                    let now = self.read(T::clone);
                    find(&now)
                };
                if let Some(found) = found {
                    return found;
                }
                changed.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn whoever_waits_sees_what_it_waits_for_however_fast_it_changes() {
        let value = Arc::new(Observable::new(0));
        let waiting: Vec<_> = (1..=50)
            .map(|least| {
                let value = value.clone();
                tokio::spawn(async move { value.wait(|now| (*now >= least).then_some(*now)).await })
            })
            .collect();
        for _ in 0..50 {
            value.change(|now| *now += 1);
            tokio::task::yield_now().await;
        }
        for (task, least) in waiting.into_iter().zip(1..) {
            let seen = tokio::time::timeout(Duration::from_secs(60), task)
                .await
                .unwrap()
                .unwrap();
            assert!(seen >= least, "{seen} is not what {least} waited for");
        }
    }

    #[tokio::test]
    async fn a_change_that_is_not_worth_it_wakes_nobody() {
        let value = Arc::new(Observable::new(0));
        let checks = Arc::new(Mutex::new(0));
        let waiting = tokio::spawn({
            let (value, checks) = (value.clone(), checks.clone());
            async move {
                value
                    .wait(|now| {
                        *checks.lock() += 1;
                        (*now == 2).then_some(())
                    })
                    .await;
            }
        });
        tokio::task::yield_now().await;
        assert!(!value.change_if(|now| {
            *now = 1;
            false
        }));
        tokio::task::yield_now().await;
        assert_eq!(*checks.lock(), 1);
        value.change(|now| *now = 2);
        waiting.await.unwrap();
    }
}
