//! A cache that keeps only values in use.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fingerprint::Fingerprint;

/// Shares equal values. The cache has weak references only: a value lives as long as one of its users holds it.
pub struct WeakCache<T: ?Sized, K = Fingerprint>(Mutex<HashMap<K, Weak<T>>>);

impl<T: ?Sized, K> Default for WeakCache<T, K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> WeakCache<Semaphore, K> {
    /// Waits until nobody else holds the turn of this key. It is given to a thread that may hang and can't be ended, so that
    /// only one does, however often the work is tried. Cancel safe.
    pub async fn turn(&self, key: K) -> Option<OwnedSemaphorePermit> {
        let made = self.get_or_try_insert(key, || Ok::<_, ()>(Arc::new(Semaphore::new(1))));
        made.ok()?.acquire_owned().await.ok()
    }
}

impl<T: ?Sized, K: Eq + Hash> WeakCache<T, K> {
    /// Returns the value of a key if it is in use, else the result of `make`.
    ///
    /// Two callers can make the same value at the same time. Both then get the value that is inserted first.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get_or_try_insert<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(cached) = self.0.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(cached);
        }
        // Not under the lock: callers with other keys would wait for this one.
        let made = make()?;
        let mut map = self.0.lock();
        if let Some(other) = map.get(&key).and_then(Weak::upgrade) {
            return Ok(other);
        }
        // Before the map grows, dead entries make room.
        if map.len() == map.capacity() {
            map.retain(|_, value| value.strong_count() > 0);
        }
        map.insert(key, Arc::downgrade(&made));
        Ok(made)
    }
}
