//! A value that can be waited for.
//!
//! Clusters have several of these each, and most of them nobody ever waits for. A channel of tokio's `watch` is made for
//! many who wait and takes some 300 bytes more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub struct Latest<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Latest<T> {
    /// A value that nobody waits for yet.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the value. Must be quick: changes wait for it.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }

    /// Changes the value and wakes whoever waits for it.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        self.change_if(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and wakes whoever waits if `change` says that it is worth it. Returns what it said.
    pub fn change_if(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = change(&mut self.lock());
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Waits until `look` finds something in the value. Cancel safe.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async function has room for its arguments twice"
    )]
    pub fn wait<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> impl Future<Output = R>
    where
        T: Clone,
    {
        async move {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Listen first, look second: a change between the two must not be slept through.
                changed.as_mut().enable();
                let found = {
                    // A copy: `look` may be a user's, and the value must not stay locked while that runs.
                    let now = self.read(T::clone);
                    look(&now)
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
        let value = Arc::new(Latest::new(0));
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
        let value = Arc::new(Latest::new(0));
        let looks = Arc::new(Mutex::new(0));
        let waiting = tokio::spawn({
            let (value, looks) = (value.clone(), looks.clone());
            async move {
                value
                    .wait(|now| {
                        *looks.lock().unwrap() += 1;
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
        assert_eq!(*looks.lock().unwrap(), 1);
        value.change(|now| *now = 2);
        waiting.await.unwrap();
    }
}
