use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic under the lock: nothing in this crate leaves its data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
