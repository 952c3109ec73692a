//! Sharing of what is equal, for as long as it is in use.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use crate::{Fingerprint, sync::lock};

/// What others hold, to be shared with them: what nobody holds any more is not kept.
pub struct WeakMap<T: ?Sized, K = Fingerprint>(Mutex<HashMap<K, Weak<T>>>);

impl<T: ?Sized, K> Default for WeakMap<T, K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: ?Sized, K: Eq + Hash> WeakMap<T, K> {
    fn map(&self) -> MutexGuard<'_, HashMap<K, Weak<T>>> {
        lock(&self.0)
    }

    /// The value of a key if somebody holds it, else a new one.
    pub fn get_or<E>(&self, key: K, make: impl FnOnce() -> Result<Arc<T>, E>) -> Result<Arc<T>, E> {
        if let Some(held) = self.map().get(&key).and_then(Weak::upgrade) {
            return Ok(held);
        }
        // Two that make the same at once waste a little work, which is better than waiting for each other.
        let made = make()?;
        let mut map = self.map();
        if let Some(other) = map.get(&key).and_then(Weak::upgrade) {
            return Ok(other);
        }
        if map.len() == map.capacity() {
            map.retain(|_, held| held.strong_count() > 0);
        }
        map.insert(key, Arc::downgrade(&made));
        Ok(made)
    }
}
