//! What there is once for each kind in a fleet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::watch::WatchRequest;

/// Something of each kind, for as long as a watch of that kind holds it.
pub(crate) struct Kinds<T>(Mutex<HashMap<WatchRequest, Weak<T>>>);

impl<T> Default for Kinds<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Kinds<T> {
    /// That of the kind that is asked for, wherever and which of its objects.
    pub(crate) fn get(&self, request: &WatchRequest, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = request.whole_kind();
        if let Some(known) = kinds.get(&kind).and_then(Weak::upgrade) {
            return known;
        }
        kinds.retain(|_, of_kind| of_kind.strong_count() > 0);
        let made = Arc::new(make());
        kinds.insert(kind, Arc::downgrade(&made));
        made
    }
}
